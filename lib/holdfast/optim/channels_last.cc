#include "holdfast/optim/channels_last.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "holdfast/state/optimizer_fields.h"

namespace holdfast { inline namespace v0_2 {
namespace {

void lay_out(const at::Tensor& tensor) {
  // Only tensors of four dimensions have this format; vectors and matrices stay.
  if (!tensor.defined() || tensor.dim() != 4 || tensor.layout() != at::kStrided) return;
  if (tensor.is_contiguous(at::MemoryFormat::ChannelsLast)) return;
  // set_data keeps the tensor's identity, by which optimizers find its slots.
  tensor.set_data(tensor.detach().contiguous(at::MemoryFormat::ChannelsLast));
}

}  // namespace

void to_channels_last(torch::nn::Module& module) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : module.parameters()) {
    lay_out(parameter);
    // The gradient as well: a fused optimizer copies tensors whose layouts differ at each step.
    if (parameter.grad().defined()) lay_out(parameter.grad());
  }
}

void to_channels_last(torch::optim::Optimizer& optimizer) {
  const at::NoGradGuard no_grad;
  const auto* const own = dynamic_cast<const OwnOptimizer*>(&optimizer);
  for (auto& [parameter, state] : optimizer.state()) {
    const OptimizerKind* const kind = own != nullptr ? &own->kind() : torch_kind_of_state(*state);
    if (kind == nullptr || !kind->is_state(*state)) continue;
    kind->slots(*state, [](const char*, const at::Tensor& slot) { lay_out(slot); });
  }
}

}}  // namespace holdfast::v0_2
