#include "holdfast/optim/channels_last.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "holdfast/state/lamb_options.h"

namespace holdfast { inline namespace v0_2 {
namespace {

void lay_out(const at::Tensor& tensor) {
  // Only tensors of four dimensions have this format; vectors and matrices stay.
  if (!tensor.defined() || tensor.dim() != 4 || tensor.layout() != at::kStrided) return;
  if (tensor.is_contiguous(at::MemoryFormat::ChannelsLast)) return;
  // set_data keeps the tensor's identity, by which optimizers find its slots.
  tensor.set_data(tensor.detach().contiguous(at::MemoryFormat::ChannelsLast));
}

// Calls visit(state) if the state has that type.
template <class State, class Visit>
void as(torch::optim::OptimizerParamState& state, const Visit& visit) {
  if (auto* const typed = dynamic_cast<State*>(&state)) visit(*typed);
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
  namespace to = torch::optim;
  const at::NoGradGuard no_grad;
  const auto moments = [](auto& state) {
    lay_out(state.exp_avg());
    lay_out(state.exp_avg_sq());
    if constexpr (requires { state.max_exp_avg_sq(); }) lay_out(state.max_exp_avg_sq());
  };
  for (auto& [parameter, state] : optimizer.state()) {
    as<to::SGDParamState>(*state, [](auto& slots) { lay_out(slots.momentum_buffer()); });
    as<to::AdamParamState>(*state, moments);
    as<to::AdamWParamState>(*state, moments);
    as<LambParamState>(*state, moments);
    as<to::AdagradParamState>(*state, [](auto& slots) { lay_out(slots.sum()); });
    as<to::RMSpropParamState>(*state, [](auto& slots) {
      lay_out(slots.square_avg());
      lay_out(slots.momentum_buffer());
      lay_out(slots.grad_avg());
    });
  }
}

}}  // namespace holdfast::v0_2
