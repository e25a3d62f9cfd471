#include "holdfast/state/weights_aside.h"

#include <unordered_map>

namespace holdfast { inline namespace v0_2 {
namespace {

// By TensorImpl. A saving state need not know who exchanges its weights.
thread_local std::unordered_map<const void*, at::Tensor> aside;

}  // namespace

bool is_aside(const at::Tensor& tensor) { return aside.contains(tensor.unsafeGetTensorImpl()); }

void put_aside(const at::Tensor& tensor, const at::Tensor& weight) {
  aside.emplace(tensor.unsafeGetTensorImpl(), weight);
}

void put_back(const at::Tensor& tensor) noexcept { aside.erase(tensor.unsafeGetTensorImpl()); }

const at::Tensor& in_training(const at::Tensor& tensor) {
  const auto found = aside.find(tensor.unsafeGetTensorImpl());
  return found != aside.end() ? found->second : tensor;
}

}}  // namespace holdfast::v0_2
