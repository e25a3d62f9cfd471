// Copies many tensors between live memory and an image in host memory. Bytes in the image are in *logical
// order*, that of a contiguous row-major tensor, for any strides and device. So h5py sees the program's rows
// and columns.
//
// run() copies contiguous host memory, split evenly by bytes among ATen's threads. CUDA copies start in add()
// and overlap; run() waits for them once. Other tensors are copied in add().
//
// Requires: tensors and byte ranges stay in place until run() returns or the stager is destroyed. Errors:
// Error (a defect) if a tensor and its range differ in size. Threads: run() uses ATen's threads. One thread
// owns a stager.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>

#include "holdfast/snapshot/copy_list.h"
#include "holdfast/state/internal/cuda_tensors.h"

namespace holdfast { inline namespace v0_2 {

// True if the tensor's bytes lie in host memory in logical order, so that one memcpy is enough.
bool plain_memory(const at::Tensor& tensor);

class Stager {
 public:
  void add(const at::Tensor& from, std::span<std::byte> to);
  void add(std::span<const std::byte> from, const at::Tensor& to);
  void run();  // call once

 private:
  CopyList copies_;
  internal::CudaTransfers cuda_;
};

}}  // namespace holdfast::v0_2
