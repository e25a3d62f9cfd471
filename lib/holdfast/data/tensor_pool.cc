#include "holdfast/data/tensor_pool.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>
#include <c10/util/accumulate.h>

#include <atomic>
#include <cstddef>

namespace holdfast::inline v1 {
namespace {

// More blocks than a loader ever has under way at once; beyond that, memory is simply not taken back.
constexpr std::size_t kMostStorages = 256;

}  // namespace

at::Tensor TensorPool::take(at::IntArrayRef sizes, at::ScalarType type) {
  const at::TensorOptions options = at::TensorOptions().dtype(type);
  if (pinned_) return at::empty(sizes, options.pinned_memory(true));

  const std::size_t bytes = static_cast<std::size_t>(c10::multiply_integers(sizes)) * c10::elementSize(type);
  const std::scoped_lock lock(mutex_);
  for (c10::Storage& storage : storages_) {
    if (storage.use_count() != 1 || storage.nbytes() != bytes) continue;
    // Pairs with the release in the last owner's decrement: its reads lie before our writes.
    std::atomic_thread_fence(std::memory_order_acquire);
    // A fresh tensor over the old storage: nothing a user did to the earlier one (requires_grad, views) comes
    // back.
    return at::empty({0}, options).set_(storage, 0, sizes);
  }
  at::Tensor tensor = at::empty(sizes, options);
  if (bytes > 0 && storages_.size() < kMostStorages) storages_.push_back(tensor.storage());
  return tensor;
}

}  // namespace holdfast::inline v1
