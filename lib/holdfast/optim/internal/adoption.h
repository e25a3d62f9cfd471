// Groups and slots that move between two optimizers of the same parameters.
//
// Threads: the training thread.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstddef>

namespace holdfast::inline v1::internal {

// `from` is left without slots; one of our own settles first.
void take_slots(torch::optim::Optimizer& from, torch::optim::Optimizer& to);
// Slots and the groups' options. UsageError when `to` has other groups or other parameters in them.
void give_all(torch::optim::Optimizer& from, torch::optim::Optimizer& to, const char* optimizer);

// The options of a group as its own type; UsageError for those of another optimizer.
template <class Options>
Options& options_of(torch::optim::OptimizerParamGroup& group, const char* optimizer);
[[noreturn]] void refuse_options(const char* optimizer);

template <class Options>
Options& options_of(torch::optim::OptimizerParamGroup& group, const char* optimizer) {
  if (auto* const options = dynamic_cast<Options*>(&group.options())) return *options;
  refuse_options(optimizer);
}

// The state that is there, or nullptr.
template <class State>
State* state_at(torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  return found == optimizer.state().end() ? nullptr : static_cast<State*>(found->second.get());
}

}  // namespace holdfast::inline v1::internal
