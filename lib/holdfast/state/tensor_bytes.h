// The border between ATen and plain bytes: element types, and copies in *logical order*, the order of a
// contiguous row-major tensor, whatever the strides and the device (so that h5py sees rows and columns as the
// program does).
//
// Errors: UsageError naming the tensor for what has no such bytes: undefined, sparse, quantized or meta
// tensors, element types that a checkpoint cannot hold.
// Threads: CopyQueue::run() uses ATen's own threads; a queue belongs to one thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "holdfast/snapshot/tensor_spec.h"

namespace holdfast::inline v1 {

std::optional<DType> dtype_of(c10::ScalarType type);
c10::ScalarType scalar_type_of(DType dtype);
TensorSpec spec_of(std::string name, const at::Tensor& tensor);

// A new tensor of that type, shape and (where given) strides, on `device`; its elements are not set.
at::Tensor empty_like_spec(const TensorSpec& spec, std::optional<std::vector<std::int64_t>> strides,
                           at::Device device);

// The tensor's strides where they are not those of a contiguous tensor; exact, also for dimensions of size 1,
// because kernels are chosen by them.
std::optional<std::vector<std::int64_t>> unusual_strides(const at::Tensor& tensor);
// Whether strides fill their shape without holes or overlaps: what can be made anew with empty_strided.
bool dense_strides(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides);

// Copies of many tensors at once. What is contiguous in host memory is queued and split evenly by bytes among
// ATen's threads in run(); the rest is copied when it is added.
//
// Requires: tensors and byte ranges stay where they are until run() returns; sizes agree.
class CopyQueue {
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
