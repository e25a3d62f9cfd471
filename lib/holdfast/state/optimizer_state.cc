#include "holdfast/state/optimizer_state.h"

#include <c10/util/Type.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>
#include <typeinfo>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/state/internal/lbfgs_fields.h"
#include "holdfast/state/optimizer_fields.h"
#include "holdfast/state/tensor_bytes.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using internal::state_of;
using internal::to_value;
using internal::values_of;
using internal::visit_options;
using torch::optim::LBFGSParamState;
using torch::optim::Optimizer;

// A tensor's name has at most 1,024 bytes, and slots come only with the first update.
constexpr std::size_t kMostSlotName = 1024 - std::string_view("/momentum_buffer/").size();

// What to do about a slot that no file can hold. An optimizer has its slots whatever the state leaves out.
constexpr char kNoSlot[] =
    "an optimizer's slot cannot be left out: make this parameter's gradients dense (for an embedding, "
    "sparse(false)), or train it without the option that needs the slot (momentum)";

// Checkpoints from before such options have no entry for them. An entry is written only if it differs from
// the constructor's value, so these checkpoints still compare equal.
Attributes unsaid_values(const OptimizerKind& kind, const std::string& optimizer) {
  Attributes unsaid;
  if (kind.later.empty()) return unsaid;
  const Attributes plain = values_of(kind, *kind.plain(), optimizer);
  for (const char* const option : kind.later) unsaid.set(option, plain.find(option)->value);
  return unsaid;
}

// True if torch::optim's kernels and the fused ones give different bits. On a CPU FusedSgd has torch's bits.
bool depends_on_kernels(Optimizer& optimizer, std::string_view type) {
  if (type == "Adam" || type == "AdamW") return true;
  if (type != "SGD") return false;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const bool exact = parameter.scalar_type() == at::kFloat || parameter.scalar_type() == at::kDouble;
      if (!parameter.device().is_cpu() || !exact) return true;
    }
  }
  return false;
}

}  // namespace

OptimizerState::OptimizerState(std::string name, Optimizer& optimizer, OptimizerOptions options)
    : name_(std::move(name)), optimizer_(&optimizer), kind_(kind_of(optimizer)), options_(options) {
  if (kind_ != nullptr) return;
  throw UsageError(
      "optimizer '" + name_ + "' is a " + c10::demangle(typeid(optimizer).name()) +
      ": only torch::optim's own SGD, Adam, AdamW, RMSprop, Adagrad and LBFGS and those of "
      "holdfast/optim are known, without what a derived class adds; give it save(StateWriter&) "
      "const and load(const StateReader&) (state/stateful.h), and add it as that. One derived from "
      "holdfast/optim's that adds no state overrides described() (state/own_optimizer.h)");
}

bool OptimizerState::one_state() const { return kind_->one_state; }

bool OptimizerState::rate_changed() const {
  const auto& groups = optimizer_->param_groups();
  for (std::size_t g = 0; g < std::min(groups.size(), chosen_.size()); ++g) {
    if (!same_bits(AttributeValue(groups[g].options().get_lr()), chosen_[g].find("lr")->value)) return true;
  }
  return false;
}

std::string OptimizerState::group_prefix(std::size_t group) const {
  return name_ + ".group." + std::to_string(group) + ".";
}

OptimizerState::Groups OptimizerState::group_names(const ModuleInventory& modules,
                                                   const Parameters& appended) const {
  std::set<std::string> owners;
  std::vector<std::vector<const ParameterName*>> found;
  const auto name = [&](const std::vector<at::Tensor>& parameters) {
    auto& names = found.emplace_back();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const auto known = modules.parameters.find(parameters[i].unsafeGetTensorImpl());
      if (known == modules.parameters.end()) {
        throw UsageError("parameter " + std::to_string(i) + " of group " + std::to_string(found.size() - 1) +
                         " of optimizer '" + name_ + "', of shape " + shape_text(parameters[i].sizes()) +
                         ", belongs to no added module: add the module that registers it first");
      }
      owners.insert(known->second.module);
      names.push_back(&known->second);
    }
  };
  for (const auto& group : optimizer_->param_groups()) name(group.params());
  for (const auto& parameters : appended) name(parameters);
  Groups groups;
  // Two passes: whether the module's name is needed is known only after all groups.
  for (const auto& names : found) {
    auto& group = groups.emplace_back();
    for (const auto* name : names) {
      // With one module the dotted name is unique. With several it is not, so the module's name comes first.
      group.push_back(owners.size() > 1 ? name->module + "." + name->dotted : name->dotted);
      if (name_.size() + group.back().size() <= kMostSlotName) continue;
      throw UsageError("slots of parameter '" + group.back() + "' would have too long a name under '" +
                       name_ + "': add the optimizer under a shorter one");
    }
  }
  return groups;
}

OptimizerInventory OptimizerState::take_inventory(const ModuleInventory& modules) {
  OptimizerInventory inventory{.parameters = group_names(modules, {}), .slots = {}, .misfits = {}};
  auto& groups = optimizer_->param_groups();
  for (const auto& group : groups) {
    if (dynamic_cast<const SlotsAway*>(&group.options()) == nullptr) continue;
    throw UsageError("optimizer '" + name_ +
                     "' has no slots of its own any more, another one took them over: add that one to the "
                     "TrainState in its place, or call that one's give_back() first");
  }
  // A program may remove groups. Options of later groups would then be compared with those of a removed one.
  if (chosen_.size() > groups.size()) chosen_.resize(groups.size());
  // Options as they were when the group was first seen are the program's choice; a schedule changes them
  // later.
  for (std::size_t g = chosen_.size(); g < groups.size(); ++g) {
    chosen_.push_back(values_of(*kind_, groups[g].options(), name_));
  }
  list_slots(modules, inventory);
  for (const SlotTensor& slot : inventory.slots)
    static_cast<void>(stored_type(slot.name, slot.tensor, kNoSlot));
  return inventory;
}

void OptimizerState::list_slots(const ModuleInventory& modules, OptimizerInventory& inventory) const {
  const Groups& names = inventory.parameters;
  const auto may_change = [&](const at::Tensor& parameter) {
    return modules.parameters.at(parameter.unsafeGetTensorImpl()).may_change_shape;
  };
  std::vector<SlotTensor>& slots = inventory.slots;
  if (kind_->one_state) {
    if (auto* const state = state_of(*optimizer_, internal::first_parameter(*optimizer_), *kind_)) {
      for (const auto& field : internal::lbfgs_fields(static_cast<LBFGSParamState&>(*state))) {
        slots.push_back({name_ + "/lbfgs/" + field.name, *field.tensor,
                         may_change(internal::first_parameter(*optimizer_))});
      }
    }
    return;
  }
  const auto& groups = optimizer_->param_groups();
  std::set<const void*> stored;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::size_t i = 0; i < names[g].size(); ++i) {
      const at::Tensor& parameter = groups[g].params()[i];
      auto* const state = state_of(*optimizer_, parameter, *kind_);
      if (!state && internal::has_state(*optimizer_, parameter)) {
        inventory.misfits.push_back("the state of " + names[g][i] + " in '" + name_ +
                                    "' is of another class than " + kind_->name + "'s");
      }
      // A parameter that is listed twice has one state.
      if (!state || !stored.insert(state).second) continue;
      kind_->slots(*state, [&](const char* slot, const at::Tensor& tensor) {
        if (!tensor.defined()) return;
        slots.push_back({name_ + "/" + slot + "/" + names[g][i], tensor, may_change(parameter)});
        if (tensor.sizes() == parameter.sizes()) return;
        inventory.misfits.push_back(slots.back().name + " has the shape " + shape_text(tensor.sizes()) +
                                    ", and its parameter " + shape_text(parameter.sizes()));
      });
    }
  }
}

void OptimizerState::put_attributes(const OptimizerInventory& inventory, Attributes& out,
                                    std::vector<std::string>& options) const {
  out.set(name_ + ".type", std::string(kind_->name));
  if (auto* const own = dynamic_cast<OwnOptimizer*>(optimizer_)) {
    // A fused optimizer may count steps on the device; settle() copies the counts into the states that
    // follow.
    own->settle();
    if (own->maximizes()) {
      out.set(name_ + ".maximize", true);
      options.push_back(name_ + ".maximize");
    }
  }
  if (depends_on_kernels(*optimizer_, kind_->name)) {
    const bool own = dynamic_cast<OwnOptimizer*>(optimizer_) != nullptr;
    out.set("environment." + name_ + ".kernels", std::string(own ? "fused" : "torch::optim"), Role::record);
  }
  auto& groups = optimizer_->param_groups();
  const Attributes unsaid = unsaid_values(*kind_, name_);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::string prefix = group_prefix(g);
    out.set(prefix + "parameters", inventory.parameters[g]);
    visit_options(*kind_, groups[g].options(), name_, [&](const char* option, const OptionField& field) {
      const AttributeValue& chosen = chosen_[g].find(option)->value;
      const Attribute* const plain = unsaid.find(option);
      if (plain == nullptr || !same_bits(chosen, plain->value)) {
        out.set(prefix + option, chosen);
        options.push_back(prefix + option);
      }
      // Written only if a schedule or the program has changed it since.
      if (!same_bits(to_value(field), chosen)) out.set(prefix + "now." + option, to_value(field));
    });
    if (kind_->one_state) continue;
    std::vector<std::int64_t> steps;
    for (const at::Tensor& parameter : groups[g].params()) {
      const auto* const state = state_of(*optimizer_, parameter, *kind_);
      steps.push_back(state ? kind_->step(*state) : -1);
    }
    out.set(prefix + "steps", std::move(steps));
  }
  if (kind_->one_state) {
    if (auto* const state = state_of(*optimizer_, internal::first_parameter(*optimizer_), *kind_)) {
      internal::put_lbfgs_attributes(name_ + ".lbfgs", static_cast<LBFGSParamState&>(*state), out);
    }
  }
  for (const SlotTensor& slot : inventory.slots) {
    if (auto strides = unusual_strides(slot.tensor)) out.set(attribute_of(slot.name, "strides"), *strides);
  }
}

}}  // namespace holdfast::v0_2
