// Reuses the memory of batches when the last tensor over it is gone, because fresh pages cost more than
// filling them. A program may keep a batch; its memory is then not reused. The pool never holds more blocks
// than were in use at once, whatever their sizes.
//
// Pinned tensors come from torch's caching host allocator instead, which knows about copies in flight.
// Errors: those of torch without memory. Threads: take() may be called from any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <mutex>
#include <vector>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

class HOLDFAST_EXPORT TensorPool {
 public:
  explicit TensorPool(bool pinned = false) : pinned_(pinned) {}

  // A contiguous CPU tensor with arbitrary content; no other tensor shares its memory.
  at::Tensor take(at::IntArrayRef sizes, at::ScalarType type);

 private:
  bool pinned_;
  std::mutex mutex_;
  std::vector<c10::Storage> storages_;  // the one used last is last
};

}}  // namespace holdfast::v0_2
