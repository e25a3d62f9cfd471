#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/snapshot/huge_pages.h"
#include "holdfast/state/internal/lbfgs_fields.h"
#include "holdfast/state/optimizer_fields.h"
#include "holdfast/state/optimizer_state.h"
#include "holdfast/state/stager.h"
#include "holdfast/state/tensor_bytes.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using internal::first_parameter;
using internal::from_value;
using internal::visit_options;
using torch::optim::LBFGSParamState;

std::string list_text(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < 8; ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > 8) text += " and " + std::to_string(names.size() - 8) + " more";
  return text;
}

std::string names_difference(const std::vector<std::string>& here, const std::vector<std::string>& there) {
  const auto missing_from = [](const auto& wanted, const auto& among) {
    const std::set<std::string> known(among.begin(), among.end());
    std::vector<std::string> missing;
    for (const auto& name : wanted) {
      if (!known.contains(name)) missing.push_back(name);
    }
    return missing;
  };
  const auto only_here = missing_from(here, there), only_there = missing_from(there, here);
  // The recorded counts of steps follow the order of the parameters.
  if (only_here.empty() && only_there.empty()) return "has its parameters in another order";
  std::string text = "has other parameters:";
  if (!only_here.empty()) text += " only here " + list_text(only_here);
  if (!only_there.empty())
    text += std::string(only_here.empty() ? "" : ";") + " only in the checkpoint " + list_text(only_there);
  return text;
}

at::Tensor slot_tensor(const TensorSpec& spec, const Attributes& recorded, const at::Tensor& parameter,
                       bool own_layout) {
  std::optional<std::vector<std::int64_t>> strides;
  const std::string name = attribute_of(spec.name, "strides");
  // The slot then follows its parameter, because this run has chosen a layout of its own.
  // LBFGS's vectors have the shape of no parameter, so they keep the recorded strides.
  if (own_layout && spec.shape == parameter.sizes()) {
    strides = parameter.strides().vec();
  } else if (recorded.has(name)) {
    strides = recorded.get_ints(name);
  }
  return empty_like_spec(spec, std::move(strides), parameter.device());
}

}  // namespace

std::vector<std::string> OptimizerState::differences(const ModuleInventory& modules,
                                                     std::span<const TensorSpec> tensors,
                                                     const Attributes& recorded) const {
  const std::string& type = recorded.get_string(name_ + ".type");
  if (type != kind_->name) {
    return {"'" + name_ + "' is " + kind_->name + " here and " + type + " in the checkpoint"};
  }

  const Groups names = group_names(modules);
  std::size_t groups = 0;
  // Groups are numbered without gaps.
  while (recorded.has(group_prefix(groups) + "parameters")) ++groups;
  if (groups != names.size()) {
    return {"'" + name_ + "' has " + std::to_string(names.size()) + " parameter groups here and " +
            std::to_string(groups) + " in the checkpoint"};
  }
  std::vector<std::string> texts;
  for (std::size_t g = 0; g < groups; ++g) {
    const auto& there = recorded.get_strings(group_prefix(g) + "parameters");
    if (there != names[g]) {
      texts.push_back("group " + std::to_string(g) + " of '" + name_ + "' " +
                      names_difference(names[g], there));
    }
  }
  // With other parameters the comparison of slots would only repeat the difference.
  if (!texts.empty()) return texts;
  try {
    // Without a snapshot build() runs every check of a load and allocates no tensor.
    static_cast<void>(build(modules, tensors, recorded, nullptr, false));
  } catch (const RefusedError& error) {
    texts.emplace_back(error.what());
  }
  return texts;
}

OptimizerState::Loaded OptimizerState::prepare(const ModuleInventory& modules, const Snapshot& snapshot,
                                               bool own_layout) const {
  return build(modules, snapshot.layout->tensors(), snapshot.attributes, &snapshot, own_layout);
}

OptimizerState::Loaded OptimizerState::build(const ModuleInventory& modules,
                                             std::span<const TensorSpec> tensors, const Attributes& recorded,
                                             const Snapshot* snapshot, bool own_layout) const {
  // The recorded slots; key: the name without the optimizer's.
  std::map<std::string, const TensorSpec*> slots;
  for (const TensorSpec& spec : tensors) {
    if (spec.name.starts_with(name_ + "/")) slots.emplace(spec.name.substr(name_.size() + 1), &spec);
  }
  Stager copies;
  std::vector<std::span<std::byte>> memory;  // of the new tensors
  const auto restore = [&](const TensorSpec& spec, const at::Tensor& parameter) {
    if (!snapshot) return at::Tensor();
    // Allocated now, so that install() cannot fail.
    at::Tensor tensor = slot_tensor(spec, recorded, parameter, own_layout);
    copies.add(snapshot->find(spec.name).value(), tensor);
    if (tensor.device().is_cpu()) {
      memory.emplace_back(static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes());
    }
    return tensor;
  };

  // Built aside; install() moves the states in. So a refused checkpoint leaves the optimizer unchanged.
  Loaded loaded;
  const Groups names = group_names(modules);
  auto& groups = optimizer_->param_groups();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    // Tried on a copy: a value of another type must be refused here, because install() must not fail.
    const auto probe = groups[g].options().clone();
    visit_options(*kind_, *probe, name_, [&](const char* option, const OptionField& field) {
      const Attribute* const now = recorded.find(group_prefix(g) + "now." + option);
      if (now && !from_value(now->value, field)) {
        throw RefusedError("attribute '" + group_prefix(g) + "now." + option + "' is of another type");
      }
    });
  }
  if (kind_->one_state) {
    if (recorded.has(name_ + ".lbfgs.n_iter")) {
      const at::Tensor& parameter = first_parameter(*optimizer_);
      auto state = std::make_unique<LBFGSParamState>();
      const auto longest =
          static_cast<const torch::optim::LBFGSOptions&>(groups.front().options()).history_size();
      const auto take = [&](const std::string& field) {
        const auto found = slots.find("lbfgs/" + field);
        if (found == slots.end()) throw RefusedError("'" + name_ + "/lbfgs/" + field + "' is missing");
        at::Tensor tensor = restore(*found->second, parameter);
        slots.erase(found);
        return tensor;
      };
      internal::fill_lbfgs(name_ + ".lbfgs", recorded, longest, take, *state);
      loaded.states.emplace_back(parameter.unsafeGetTensorImpl(), std::move(state));
    }
  } else {
    std::set<const void*> restored;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const auto& steps = recorded.get_ints(group_prefix(g) + "steps");
      if (steps.size() != names[g].size()) {
        throw RefusedError("attribute '" + group_prefix(g) + "steps' has another length than the group");
      }
      for (std::size_t i = 0; i < steps.size(); ++i) {
        // -1 means that this parameter has had no step.
        if (steps[i] < 0) continue;
        const at::Tensor& parameter = groups[g].params()[i];
        // A parameter that is listed twice has one state, as in torch::optim.
        if (!restored.insert(parameter.unsafeGetTensorImpl()).second) continue;
        auto state = kind_->make_state();
        kind_->set_step(*state, steps[i]);
        kind_->slots(*state, [&](const char* slot, at::Tensor& tensor) {
          const auto found = slots.find(slot + ("/" + names[g][i]));
          // A slot that this optimizer has and the file lacks stays undefined, as in a fresh state.
          if (found == slots.end()) return;
          const TensorSpec& spec = *found->second;
          if (spec.shape != parameter.sizes()) {
            throw RefusedError("'" + spec.name + "' has the shape " + shape_text(spec.shape) +
                               ", its parameter " + shape_text(parameter.sizes()));
          }
          tensor = restore(spec, parameter);
          // What is left at the end has no place, and is refused.
          slots.erase(found);
        });
        loaded.states.emplace_back(parameter.unsafeGetTensorImpl(), std::move(state));
      }
    }
  }
  if (!slots.empty()) {
    std::vector<std::string> unknown;
    for (const auto& slot : slots) unknown.push_back(slot.second->name);
    throw RefusedError("no place in '" + name_ + "' for " + list_text(unknown));
  }
  // Before the copies touch it: making small pages took as long as the copies.
  advise_huge_pages(std::move(memory));
  copies.run();
  return loaded;
}

void OptimizerState::install(Loaded loaded, const Attributes& recorded,
                             const std::vector<std::string>& overridden) {
  auto& states = optimizer_->state();
  // States of parameters that the checkpoint does not have must not survive.
  states.clear();
  for (auto& [parameter, state] : loaded.states) states[parameter] = std::move(state);

  auto& groups = optimizer_->param_groups();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    visit_options(*kind_, groups[g].options(), name_, [&](const char* option, const OptionField& field) {
      const std::string full = group_prefix(g) + option;
      if (std::find(overridden.begin(), overridden.end(), full) != overridden.end()) return;
      // Without a "now" entry the option had its chosen value, and check() has compared that with this
      // program's.
      const Attribute* const now = recorded.find(group_prefix(g) + "now." + option);
      from_value(now ? now->value : chosen_[g].find(option)->value, field);
    });
  }
}

}}  // namespace holdfast::v0_2
