#include "holdfast/optim/decay_groups.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/normalization.h>

#include <set>

namespace holdfast { inline namespace v0_2 {
namespace {

template <class... Norms>
bool is_one_of(const torch::nn::Module& module) {
  return ((dynamic_cast<const Norms*>(&module) != nullptr) || ...);
}
bool is_norm(const torch::nn::Module& module) {
  namespace nn = torch::nn;
  return is_one_of<nn::BatchNorm1dImpl, nn::BatchNorm2dImpl, nn::BatchNorm3dImpl, nn::InstanceNorm1dImpl,
                   nn::InstanceNorm2dImpl, nn::InstanceNorm3dImpl, nn::GroupNormImpl, nn::LayerNormImpl>(
      module);
}

// Module by module, because only the module tells whether its parameters are those of a norm.
void walk(const torch::nn::Module& module, std::set<const at::TensorImpl*>& seen, DecayParameters& out) {
  const bool norm = is_norm(module);
  for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
    const at::Tensor& tensor = parameter.value();
    // A fused optimizer refuses a parameter that is listed twice (internal/adoption.h).
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    // As most recipes do, biases and the parameters of norms are not decayed.
    const bool none = norm || tensor.dim() < 2 || parameter.key() == "bias";
    (none ? out.undecayed : out.decayed).push_back(tensor);
  }
  for (const auto& child : module.children()) walk(*child, seen, out);
}

}  // namespace

DecayParameters decay_parameters(const torch::nn::Module& module) {
  DecayParameters out;
  std::set<const at::TensorImpl*> seen;
  walk(module, seen, out);
  return out;
}

}}  // namespace holdfast::v0_2
