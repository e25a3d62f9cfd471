// Memory for batches, used again once the last tensor over it is gone: fresh pages would cost more than
// filling them. A user may keep a batch as long as they like; its memory just does not come back before.
//
// Pinned tensors come from Torch's caching host allocator instead, which knows about copies still in flight.
// Threads: take() may be called from any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <mutex>
#include <vector>

namespace holdfast::inline v1 {

class TensorPool {
 public:
  explicit TensorPool(bool pinned = false) : pinned_(pinned) {}

  // A contiguous CPU tensor with arbitrary content, shared with nobody.
  at::Tensor take(at::IntArrayRef sizes, at::ScalarType type);

 private:
  bool pinned_;
  std::mutex mutex_;
  std::vector<c10::Storage> storages_;
};

}  // namespace holdfast::inline v1
