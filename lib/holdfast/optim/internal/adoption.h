// Groups and slots that move between two optimizers of the same parameters.
//
// Threads: the training thread.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstddef>
#include <memory>

#include "holdfast/state/own_optimizer.h"

namespace holdfast::inline v1::internal {

// `from` is left without slots; one of our own settles first.
void take_slots(torch::optim::Optimizer& from, torch::optim::Optimizer& to);
// Slots and the groups' options. UsageError when `to` has other groups or other parameters in them, or goes
// the other way: up the gradient or down.
void give_all(torch::optim::Optimizer& from, torch::optim::Optimizer& to, const char* optimizer);

// UsageError when another optimizer has taken over this one's slots: whoever steps with it, adopts it or
// takes it back would go on from nothing.
void require_slots_here(torch::optim::Optimizer& optimizer, const char* name);

// UsageError unless both go up the gradient or both down.
void require_same_way(torch::optim::Optimizer& from, torch::optim::Optimizer& to, const char* optimizer);

// From now on no TrainState saves this optimizer (own_optimizer.h).
template <class Options>
void mark_slots_away(torch::optim::Optimizer& optimizer) {
  for (auto& group : optimizer.param_groups()) {
    group.set_options(
        std::make_unique<OptionsWithSlotsAway<Options>>(static_cast<const Options&>(group.options())));
  }
}

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
