// Copies between live tensors and an image in host memory, many at once. Bytes are in *logical order*, the
// order of a contiguous row-major tensor, whatever the strides and the device, so that h5py sees rows and
// columns as the program does. What is contiguous in host memory is queued and split evenly by bytes among
// ATen's threads in run(); the rest is copied when it is added.
//
// Requires: tensors and byte ranges stay where they are until run() returns.
// Errors: Error (a defect) when a tensor and its place differ in size.
// Threads: run() uses ATen's own threads; a stager belongs to one thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace holdfast::inline v1 {

class Stager {
 public:
  void add(const at::Tensor& from, std::span<std::byte> to);
  void add(std::span<const std::byte> from, const at::Tensor& to);
  void run();

 private:
  struct Job {
    std::int64_t start;  // bytes of the jobs before
    std::int64_t bytes;
    std::byte* to;
    const std::byte* from;
  };
  void add(const std::byte* from, std::byte* to, std::size_t bytes);

  std::vector<Job> jobs_;
  std::int64_t total_ = 0;
};

}  // namespace holdfast::inline v1
