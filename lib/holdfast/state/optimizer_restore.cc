#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
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
using internal::values_of;
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

using Count = std::ptrdiff_t;

}  // namespace

std::ptrdiff_t OptimizerState::groups_missing(const Attributes& recorded) const {
  std::size_t groups = 0;
  // Groups are numbered without gaps.
  while (recorded.has(group_prefix(groups) + "parameters")) ++groups;
  return static_cast<Count>(groups) - static_cast<Count>(optimizer_->param_groups().size());
}

bool OptimizerState::appends(const std::string& option) const {
  if (!options_.may_append_groups || !option.starts_with(name_ + ".group.")) return false;
  for (std::size_t g = 0; g < optimizer_->param_groups().size(); ++g) {
    if (option.starts_with(group_prefix(g))) return false;
  }
  return true;
}

OptimizerState::Parameters OptimizerState::appended_groups(const ModuleInventory& modules,
                                                           const Attributes& recorded) const {
  Parameters appended;
  const Count missing = options_.may_append_groups ? groups_missing(recorded) : 0;
  if (missing <= 0) return appended;
  std::set<const void*> taken;
  std::set<std::string> owners;
  for (const auto& group : optimizer_->param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const void* const key = parameter.unsafeGetTensorImpl();
      taken.insert(key);
      if (const auto known = modules.parameters.find(key); known != modules.parameters.end())
        owners.insert(known->second.module);
    }
  }
  // By both names that group_names() may give it. differences() compares those that it does give.
  std::map<std::string, const void*> free;
  for (const auto& [key, name] : modules.parameters) {
    if (taken.contains(key)) continue;
    free.emplace(name.module + "." + name.dotted, key);
    if (owners.size() == 1 && owners.contains(name.module)) free.emplace(name.dotted, key);
  }
  std::unordered_map<const void*, const at::Tensor*> tensors;
  for (const ModuleTensor& item : modules.tensors) {
    tensors.emplace(item.tensor.unsafeGetTensorImpl(), &item.tensor);
  }
  for (Count i = 0; i < missing; ++i) {
    auto& group = appended.emplace_back();
    const std::size_t number = optimizer_->param_groups().size() + static_cast<std::size_t>(i);
    for (const std::string& name : recorded.get_strings(group_prefix(number) + "parameters")) {
      const auto found = free.find(name);
      const auto tensor = found == free.end() ? tensors.end() : tensors.find(found->second);
      if (tensor == tensors.end() || !taken.insert(found->second).second) {
        throw RefusedError("group " + std::to_string(number) + " of '" + name_ +
                           "' is to be appended, and no added module has a parameter '" + name +
                           "' that is in no group yet");
      }
      group.push_back(*tensor->second);
    }
  }
  return appended;
}

// As the program that wrote the checkpoint chose them.
std::unique_ptr<torch::optim::OptimizerOptions> OptimizerState::recorded_options(
    std::size_t group, const Attributes& recorded) const {
  auto options = optimizer_->param_groups().front().options().clone();
  const auto later = kind_->later.empty() ? Attributes() : values_of(*kind_, *kind_->plain(), name_);
  visit_options(*kind_, *options, name_, [&](const char* option, const OptionField& field) {
    const std::string name = group_prefix(group) + option;
    const Attribute* value = recorded.find(name);
    // Not written if it has the constructor's value: OptimizerState::put_attributes().
    if (value == nullptr &&
        std::find(kind_->later.begin(), kind_->later.end(), std::string_view(option)) != kind_->later.end()) {
      value = later.find(option);
    }
    if (value == nullptr || !from_value(value->value, field)) {
      throw RefusedError("attribute '" + name + "' is " + (value ? "of another type" : "missing"));
    }
  });
  return options;
}

std::vector<std::string> OptimizerState::differences(const ModuleInventory& modules,
                                                     std::span<const TensorSpec> tensors,
                                                     const Attributes& recorded) const {
  const std::string& type = recorded.get_string(name_ + ".type");
  if (type != kind_->name) {
    return {"'" + name_ + "' is " + kind_->name + " here and " + type + " in the checkpoint"};
  }

  std::vector<std::string> texts;
  try {
    const Groups names = group_names(modules, appended_groups(modules, recorded));
    const Count groups = static_cast<Count>(optimizer_->param_groups().size()) + groups_missing(recorded);
    if (groups != static_cast<Count>(names.size())) {
      return {"'" + name_ + "' has " + std::to_string(names.size()) + " parameter groups here and " +
              std::to_string(groups) + " in the checkpoint"};
    }
    for (std::size_t g = 0; g < names.size(); ++g) {
      const auto& there = recorded.get_strings(group_prefix(g) + "parameters");
      if (there != names[g]) {
        texts.push_back("group " + std::to_string(g) + " of '" + name_ + "' " +
                        names_difference(names[g], there));
      }
    }
    // With other parameters the comparison of slots would only repeat the difference.
    if (!texts.empty()) return texts;
    // Runs every check of a load and allocates no tensor.
    static_cast<void>(prepare(modules, tensors, recorded, {}));
  } catch (const RefusedError& error) {
    texts.emplace_back(error.what());
  }
  return texts;
}

OptimizerState::Loaded OptimizerState::prepare(const ModuleInventory& modules, const Snapshot& snapshot,
                                               bool own_layout) const {
  Stager copies;
  std::vector<std::span<std::byte>> memory;  // of the new tensors
  Loaded loaded =
      prepare(modules, snapshot.layout->tensors(), snapshot.attributes,
              [&](const TensorSpec& spec, const at::Tensor& parameter) {
                // Allocated now, so that install() cannot fail.
                at::Tensor tensor = slot_tensor(spec, snapshot.attributes, parameter, own_layout);
                copies.add(snapshot.find(spec.name).value(), tensor);
                if (tensor.device().is_cpu()) {
                  memory.emplace_back(static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes());
                }
                return tensor;
              });
  // Before the copies touch it: making small pages took as long as the copies.
  advise_huge_pages(std::move(memory));
  copies.run();
  return loaded;
}

OptimizerState::Loaded OptimizerState::prepare(const ModuleInventory& modules,
                                               std::span<const TensorSpec> tensors,
                                               const Attributes& recorded, const Restore& restore) const {
  // The recorded slots; key: the name without the optimizer's.
  std::map<std::string, const TensorSpec*> slots;
  for (const TensorSpec& spec : tensors) {
    if (spec.name.starts_with(name_ + "/")) slots.emplace(spec.name.substr(name_.size() + 1), &spec);
  }
  const auto restored_slot = [&](const TensorSpec& spec, const at::Tensor& parameter) {
    return restore ? restore(spec, parameter) : at::Tensor();
  };
  const NewShapes reshaped = new_shapes(modules, tensors);
  const auto shape_of = [&](const at::Tensor& parameter) {
    const auto other = reshaped.find(parameter.unsafeGetTensorImpl());
    return other != reshaped.end() ? at::IntArrayRef(other->second) : parameter.sizes();
  };

  // Built aside; install() moves the states in. So a refused checkpoint leaves the optimizer unchanged.
  Loaded loaded;
  loaded.appended = appended_groups(modules, recorded);
  const Groups names = group_names(modules, loaded.appended);
  auto& groups = optimizer_->param_groups();
  for (std::size_t g = 0; g < names.size(); ++g) {
    // Tried on a copy: a value of another type must be refused here, because install() must not fail.
    const auto probe = g < groups.size() ? groups[g].options().clone() : recorded_options(g, recorded);
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
        at::Tensor tensor = restored_slot(*found->second, parameter);
        slots.erase(found);
        return tensor;
      };
      internal::fill_lbfgs(name_ + ".lbfgs", recorded, longest, take, *state);
      loaded.states.emplace_back(parameter.unsafeGetTensorImpl(), std::move(state));
    }
  } else {
    std::set<const void*> restored;
    for (std::size_t g = 0; g < names.size(); ++g) {
      const auto& parameters = g < groups.size() ? groups[g].params() : loaded.appended[g - groups.size()];
      const auto& steps = recorded.get_ints(group_prefix(g) + "steps");
      if (steps.size() != names[g].size()) {
        throw RefusedError("attribute '" + group_prefix(g) + "steps' has another length than the group");
      }
      for (std::size_t i = 0; i < steps.size(); ++i) {
        // -1 means that this parameter has had no step.
        if (steps[i] < 0) continue;
        const at::Tensor& parameter = parameters[i];
        // A parameter that is listed twice has one state, as in torch::optim.
        if (!restored.insert(parameter.unsafeGetTensorImpl()).second) continue;
        auto state = kind_->make_state();
        kind_->set_step(*state, steps[i]);
        kind_->slots(*state, [&](const char* slot, at::Tensor& tensor) {
          const auto found = slots.find(slot + ("/" + names[g][i]));
          // A slot that this optimizer has and the file lacks stays undefined, as in a fresh state.
          if (found == slots.end()) return;
          const TensorSpec& spec = *found->second;
          if (shape_of(parameter) != at::IntArrayRef(spec.shape)) {
            throw RefusedError("'" + spec.name + "' has the shape " + shape_text(spec.shape) +
                               ", its parameter " + shape_text(shape_of(parameter)));
          }
          tensor = restored_slot(spec, parameter);
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
  return loaded;
}

void OptimizerState::install(Loaded loaded, const Attributes& recorded,
                             const std::vector<std::string>& overridden) {
  auto& states = optimizer_->state();
  // States of parameters that the checkpoint does not have must not survive.
  states.clear();
  for (auto& [parameter, state] : loaded.states) states[parameter] = std::move(state);

  auto& groups = optimizer_->param_groups();
  for (auto& parameters : loaded.appended) {
    // Not by add_param_group(): that one sets options that have the constructor's value (torch_compat.h).
    groups.emplace_back(std::move(parameters), recorded_options(groups.size(), recorded));
    chosen_.push_back(values_of(*kind_, groups.back().options(), name_));
  }
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
