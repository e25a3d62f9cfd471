#include "holdfast/data/tensor_pool.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <atomic>
#include <cstddef>

namespace holdfast { inline namespace v0_2 {
namespace {

// More blocks than a loader ever uses at once. Memory of further ones is not reused.
constexpr std::size_t kMostStorages = 256;

}  // namespace

at::Tensor TensorPool::take(at::IntArrayRef sizes, at::ScalarType type) {
  const at::TensorOptions options = at::TensorOptions().dtype(type);
  // LibTorch caches pinned memory by itself, and knows when a copy to the device has ended.
  if (pinned_) return at::empty(sizes, options.pinned_memory(true));

  const std::size_t bytes = static_cast<std::size_t>(c10::multiply_integers(sizes)) * c10::elementSize(type);
  const std::scoped_lock lock(mutex_);
  const auto idle = [](const c10::Storage& storage) { return storage.use_count() == 1; };
  const auto found = std::ranges::find_if(
      storages_, [&](const c10::Storage& storage) { return idle(storage) && storage.nbytes() == bytes; });
  if (found != storages_.end()) {
    // Only the pool holds it: the batch has been dropped by the program. This pairs with the release of the
    // last owner's decrement: its reads happen before our writes.
    std::atomic_thread_fence(std::memory_order_acquire);
    std::rotate(found, found + 1, storages_.end());
    // A new tensor over the old storage, so that changes to the earlier tensor (requires_grad, views) do not
    // return.
    return at::empty({0}, options).set_(storages_.back(), 0, sizes);
  }
  // Sizes may never return: a new block takes the place of the one that has been idle for longest.
  const auto oldest = std::ranges::find_if(storages_, idle);
  if (oldest != storages_.end()) storages_.erase(oldest);
  at::Tensor tensor = at::empty(sizes, options);
  if (bytes > 0 && storages_.size() < kMostStorages) storages_.push_back(tensor.storage());
  return tensor;
}

}}  // namespace holdfast::v0_2
