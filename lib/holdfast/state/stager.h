// Copies between live tensors and an image in host memory, many at once. Bytes are in *logical order*, the
// order of a contiguous row-major tensor, whatever the strides and the device, so that h5py sees rows and
// columns as the program does. What is contiguous in host memory is queued and split evenly by bytes among
// ATen's threads in run(); CUDA devices begin theirs when it is added, many at once, and run() waits for them
// once; the rest is copied when it is added.
//
// Requires: tensors and byte ranges stay where they are until run() returns, or the stager is gone.
// Errors: Error (a defect) when a tensor and its place differ in size.
// Threads: run() uses ATen's own threads; a stager belongs to one thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>

#include "holdfast/snapshot/copy_list.h"
#include "holdfast/state/internal/cuda_tensors.h"

namespace holdfast::inline v1 {

// Whether the tensor's bytes lie in host memory in logical order, so that they can be copied as they are.
bool plain_memory(const at::Tensor& tensor);

class Stager {
 public:
  void add(const at::Tensor& from, std::span<std::byte> to);
  void add(std::span<const std::byte> from, const at::Tensor& to);
  void run();  // once

 private:
  CopyList copies_;
  internal::CudaTransfers cuda_;
};

}  // namespace holdfast::inline v1
