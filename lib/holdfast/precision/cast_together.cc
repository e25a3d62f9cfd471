#include "holdfast/precision/cast_together.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <unordered_map>
#include <utility>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Undefined tensors stay so.
variable_list copies_as(at::TensorList tensors, at::ScalarType type) {
  variable_list copies(tensors.size());
  variable_list to, from;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) continue;
    copies[i] = at::empty_like(tensors[i], tensors[i].options().dtype(type));
    to.push_back(copies[i]);
    from.push_back(tensors[i]);
  }
  // One kernel for all weights instead of one for each, because launches count.
  if (!to.empty()) at::_foreach_copy_(to, from);
  return copies;
}

struct Casts : torch::autograd::Function<Casts> {
  static variable_list forward(AutogradContext* context, at::TensorList weights, std::int64_t type) {
    // An unused weight then has no gradient instead of one of zeros, as without this.
    context->set_materialize_grads(false);
    return copies_as(weights, static_cast<at::ScalarType>(type));
  }
  static variable_list backward(AutogradContext* /*context*/, const variable_list& gradients) {
    // The backward pass below has no graph of its own, so a second derivative would silently be wrong.
    if (at::GradMode::is_enabled()) {
      throw UsageError(
          "weights that are cast together have no second derivatives: backward() without "
          "create_graph, or a Step without StepOptions::layers");
    }
    variable_list found = copies_as(gradients, at::kFloat);
    found.emplace_back();  // of the type
    return found;
  }
};

// Only types of layers that autocast casts to 16 bits. It leaves the weights of norms in FP32.
template <class Layer>
bool add_layer(torch::nn::Module& module, std::vector<at::Tensor*>& places) {
  auto* const layer = module.as<Layer>();
  if (layer == nullptr) return false;
  places.push_back(&layer->weight);
  places.push_back(&layer->bias);
  return true;
}

}  // namespace

CastTogether::CastTogether(torch::nn::Module& module) {
  const auto look = [&](torch::nn::Module& layer) {
    add_layer<torch::nn::Conv2dImpl>(layer, places_) || add_layer<torch::nn::LinearImpl>(layer, places_) ||
        add_layer<torch::nn::Conv1dImpl>(layer, places_) || add_layer<torch::nn::Conv3dImpl>(layer, places_);
  };
  look(module);
  for (const auto& layer : module.modules(/*include_self=*/false)) look(*layer);
}

CastTogether::Scope::Scope(const CastTogether& casts, at::ScalarType type) {
  variable_list weights;
  std::unordered_map<const at::TensorImpl*, std::size_t> index;  // tied weights are cast once
  for (at::Tensor* const place : casts.places_) {
    const at::Tensor& weight = *place;
    // Only what autocast would cast as well, and what is trained.
    if (!weight.defined() || weight.scalar_type() != at::kFloat || !weight.requires_grad()) continue;
    if (index.emplace(weight.unsafeGetTensorImpl(), weights.size()).second) weights.push_back(weight);
    replaced_.push_back({place, weight});
  }
  if (weights.empty()) return;
  const variable_list cast = Casts::apply(at::TensorList(weights), static_cast<std::int64_t>(type));
  for (const Replaced& one : replaced_) *one.place = cast[index.at(one.parameter.unsafeGetTensorImpl())];
}

CastTogether::Scope::~Scope() {
  // The parameters come back even if forward() throws.
  for (Replaced& one : replaced_) *one.place = std::move(one.parameter);
}

}}  // namespace holdfast::v0_2
