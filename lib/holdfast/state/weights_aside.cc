#include "holdfast/state/weights_aside.h"

#include <atomic>
#include <unordered_map>

#include "holdfast/base/mutex.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// A saving state need not know who exchanges its weights, nor on which thread.
struct Aside {
  std::atomic<bool> any = false;  // usually not: then a save need not lock for each tensor
  Mutex mutex;
  std::unordered_map<const void*, at::Tensor> weights HOLDFAST_GUARDED_BY(mutex);  // by TensorImpl
};
Aside aside;

}  // namespace

bool is_aside(const at::Tensor& tensor) {
  const MutexLock lock(aside.mutex);
  return aside.weights.contains(tensor.unsafeGetTensorImpl());
}

void put_aside(const at::Tensor& tensor, const at::Tensor& weight) {
  const MutexLock lock(aside.mutex);
  aside.weights.emplace(tensor.unsafeGetTensorImpl(), weight);
  aside.any = true;
}

void put_back(const at::Tensor& tensor) noexcept {
  const MutexLock lock(aside.mutex);
  aside.weights.erase(tensor.unsafeGetTensorImpl());
  aside.any = !aside.weights.empty();
}

at::Tensor in_training(const at::Tensor& tensor) {
  if (!aside.any) return tensor;
  const MutexLock lock(aside.mutex);
  const auto found = aside.weights.find(tensor.unsafeGetTensorImpl());
  return found != aside.weights.end() ? found->second : tensor;
}

}}  // namespace holdfast::v0_2
