// Moves groups and slots between two optimizers of the same parameters.
//
// Threads: the training thread.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstddef>
#include <memory>

#include "holdfast/state/own_optimizer.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// Moves all slots out of `from`. A Holdfast optimizer settles first.
void take_slots(torch::optim::Optimizer& from, torch::optim::Optimizer& to);
// Moves slots and the groups' options. UsageError if `to` has other groups or parameters, or if one maximizes
// and the other minimizes.
void give_all(torch::optim::Optimizer& from, torch::optim::Optimizer& to, const char* optimizer);

// UsageError if another optimizer has taken over this one's slots: stepping or adopting it would start from
// empty slots.
void require_slots_here(torch::optim::Optimizer& optimizer, const char* name);

// UsageError if a parameter is listed twice. torch::optim then makes two updates in sequence; a fused kernel
// updates all parameters of a group at once and would compute something else.
void require_each_once(const torch::optim::Optimizer& optimizer, const char* name);

// UsageError unless both maximize or both minimize.
void require_same_way(torch::optim::Optimizer& from, torch::optim::Optimizer& to, const char* optimizer);

// From now on TrainState refuses to save this optimizer (own_optimizer.h).
template <class Options>
void mark_slots_away(torch::optim::Optimizer& optimizer) {
  for (auto& group : optimizer.param_groups()) {
    group.set_options(
        std::make_unique<OptionsWithSlotsAway<Options>>(static_cast<const Options&>(group.options())));
  }
}

// The group's options as type Options. UsageError if they belong to another optimizer.
template <class Options>
Options& options_of(torch::optim::OptimizerParamGroup& group, const char* optimizer);
[[noreturn]] void refuse_options(const char* optimizer);

template <class Options>
Options& options_of(torch::optim::OptimizerParamGroup& group, const char* optimizer) {
  if (auto* const options = dynamic_cast<Options*>(&group.options())) return *options;
  refuse_options(optimizer);
}

// The parameter's state, or nullptr.
template <class State>
State* state_at(torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  return found == optimizer.state().end() ? nullptr : static_cast<State*>(found->second.get());
}

}}}  // namespace holdfast::v0_2::internal
