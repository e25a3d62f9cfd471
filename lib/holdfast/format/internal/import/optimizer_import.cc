#include "holdfast/format/internal/import/optimizer_import.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <unordered_set>
#include <utility>

#include "holdfast/base/utf8.h"
#include "holdfast/format/internal/pickle/pickle_tensor.h"
#include "holdfast/format/internal/pickle/pickle_tree.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

constexpr std::string_view kFirstGroup = ".group.0.parameters";
constexpr double kMostSteps = 1e15;  // counts up to there are exact as doubles

constexpr std::array<KindOfOptimizer, 6> kKindsOfOptimizers{{
    {"SGD", false, {{{"momentum_buffer"}}}},
    {"Adam", true, {{{"exp_avg"}, {"exp_avg_sq"}, {"max_exp_avg_sq", "amsgrad"}}}},
    {"AdamW", true, {{{"exp_avg"}, {"exp_avg_sq"}, {"max_exp_avg_sq", "amsgrad"}}}},
    {"LAMB", true, {{{"exp_avg"}, {"exp_avg_sq"}}}},
    {"RMSprop", true, {{{"square_avg"}, {"momentum_buffer", "momentum"}, {"grad_avg", "centered"}}}},
    {"Adagrad", true, {{{"sum"}}}},
}};
constexpr std::string_view kLbfgs = "LBFGS";

// They decide how Python computes, or what a schedule of Python's does later, and no value of a step.
constexpr std::array<std::string_view, 11> kIgnoredOptions = {
    "foreach", "fused",         "capturable",   "differentiable", "initial_lr", "param_names",
    "max_lr",  "base_momentum", "max_momentum", "min_lr",         "swa_lr"};

const KindOfOptimizer* kind_named(std::string_view type) {
  const auto* const found = std::find_if(kKindsOfOptimizers.begin(), kKindsOfOptimizers.end(),
                                         [&](const KindOfOptimizer& kind) { return kind.type == type; });
  return found != kKindsOfOptimizers.end() ? found : nullptr;
}

bool is_flag(const PickleValue& value, bool on) {
  return value.kind == PickleValue::Kind::boolean && (value.integer != 0) == on;
}

bool is_none(const PickleValue* value) { return value == nullptr || value->kind == PickleValue::Kind::none; }

std::string count_text(std::size_t count, const char* thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

// "optimizer/exp_avg/fc.weight" → "optimizer.strides.exp_avg/fc.weight"
std::string strides_of(const std::string& optimizer, const std::string& tensor) {
  return optimizer + ".strides." + tensor.substr(optimizer.size() + 1);
}

}  // namespace

std::span<const KindOfOptimizer> kinds_of_optimizers() { return kKindsOfOptimizers; }

std::set<std::string> optimizers_of(const Attributes& attributes) {
  std::set<std::string> optimizers;
  for (const auto& [name, attribute] : attributes) {
    if (!name.ends_with(kFirstGroup)) continue;
    std::string optimizer = name.substr(0, name.size() - kFirstGroup.size());
    if (attributes.has(optimizer + ".type")) optimizers.insert(std::move(optimizer));
  }
  return optimizers;
}

OptimizerImport::OptimizerImport(ImportDraft& draft, std::string optimizer,
                                 const std::vector<std::string>& modules)
    : draft_(draft), name_(std::move(optimizer)), type_(draft.attributes.get_string(name_ + ".type")) {
  while (draft_.attributes.has(prefix_of(groups_.size()) + "parameters")) {
    groups_.push_back(draft_.attributes.get_strings(prefix_of(groups_.size()) + "parameters"));
  }
  find_owners(modules);
}

void OptimizerImport::refuse_it(const std::string& reason) const {
  refuse("optimizer '" + printable(name_) + "' " + reason);
}

std::string OptimizerImport::prefix_of(std::size_t group) const {
  return name_ + ".group." + std::to_string(group) + ".";
}

// A parameter's name has its module in front only if the optimizer trains several (training_state.md).
void OptimizerImport::find_owners(const std::vector<std::string>& modules) {
  const auto tensor = [&](const std::string& module, const std::string& key) {
    const Attribute* const alias = draft_.attributes.find(module + ".alias." + key);
    const auto* const target = alias != nullptr ? std::get_if<std::string>(&alias->value) : nullptr;
    return draft_.find(target != nullptr ? *target : module + "/" + key);
  };
  for (const auto& group : groups_) {
    for (const std::string& parameter : group) parameters_[parameter];
  }
  for (const std::string& module : modules) {
    const bool owns_all = std::all_of(parameters_.begin(), parameters_.end(), [&](const auto& parameter) {
      return tensor(module, parameter.first) != nullptr;
    });
    for (auto& [parameter, like] : parameters_) {
      const TensorSpec* found = owns_all ? tensor(module, parameter) : nullptr;
      if (found == nullptr && parameter.starts_with(module + ".")) {
        found = tensor(module, parameter.substr(module.size() + 1));
      }
      if (found != nullptr) like.push_back(*found);
    }
  }
}

std::vector<TensorSpec> OptimizerImport::wanted_slot(const std::string& slot,
                                                     const std::string& parameter) const {
  const std::string name = name_ + "/" + slot + "/" + parameter;
  if (const TensorSpec* const own = draft_.find(name)) return {*own};
  std::vector<TensorSpec> wanted = parameters_.at(parameter);
  for (TensorSpec& spec : wanted) spec.name = name;
  return wanted;
}

void OptimizerImport::drop_slots() {
  for (const IndexedTensor& tensor : draft_.like().tensors) {
    const std::string& name = tensor.spec.name;
    if (!name.starts_with(name_ + "/")) continue;
    const std::string rest = name.substr(name_.size() + 1);
    const std::size_t slash = rest.find('/');
    const std::string parameter = slash == std::string::npos ? "" : rest.substr(slash + 1);
    // LBFGS fills the list "al" before it reads it, and an export leaves it out.
    const bool drops =
        type_ == kLbfgs ? !parameter.starts_with("al.") : parameters_.find(parameter) != parameters_.end();
    if (drops) draft_.drop(name);
  }
}

void OptimizerImport::take(const PickleValue& dict) {
  const PickleValue* const state = find(dict, "state");
  const PickleValue* const listed = find(dict, "param_groups");
  if (state == nullptr || items_of(*state) == nullptr || listed == nullptr || !is_sequence(*listed)) {
    refuse_it("has no 'state' and 'param_groups' in it: save optimizer.state_dict() under this key");
  }
  if (listed->items.size() != groups_.size()) {
    refuse_it("has " + count_text(listed->items.size(), "parameter group") + " in it and " +
              std::to_string(groups_.size()) + " in the checkpoint: make the same groups in Python");
  }
  std::unordered_set<const PickleValue*> seen;
  std::vector<std::vector<std::int64_t>> numbers;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const PickleValue& group = *listed->items[g];
    if (items_of(group) == nullptr || !seen.insert(&group).second) {
      refuse_it("has a group " + std::to_string(g) + " that is no dict of its own");
    }
    numbers.push_back(numbers_of(g, group));
    take_options(g, group);
  }
  const States states = states_of(*state);
  drop_slots();
  type_ == kLbfgs ? take_lbfgs(numbers, states) : take_states(numbers, states);
  if (const PickleValue* const others = find(dict, "other")) take_others(*others);
  forget_strides();
}

std::string OptimizerImport::what() const {
  return name_ + " (" + type_ + ", " + count_text(slots_, "slot") + ")";
}

// Strides of slots that have gone.
void OptimizerImport::forget_strides() {
  std::set<std::string> kept;
  for (const TensorSpec& spec : draft_.tensors()) {
    if (spec.name.starts_with(name_ + "/")) kept.insert(strides_of(name_, spec.name));
  }
  for (const auto& [name, attribute] : draft_.attributes.with_prefix(name_ + ".strides.")) {
    if (!kept.contains(name)) draft_.attributes.erase(name);
  }
}

OptimizerImport::States OptimizerImport::states_of(const PickleValue& dict) const {
  States states;
  std::unordered_set<const PickleValue*> seen;
  const auto& items = *items_of(dict);
  for (std::size_t i = 0; i < items.size(); i += 2) {
    if (items[i]->kind != PickleValue::Kind::integer || items_of(*items[i + 1]) == nullptr) {
      refuse_it("has states in it that are no dicts under the numbers of parameters");
    }
    // Each is read once, whatever refers to it.
    if (!seen.insert(items[i + 1]).second) refuse_it("has one state for two parameters in it");
    states[items[i]->integer] = items[i + 1];
  }
  return states;
}

std::vector<std::int64_t> OptimizerImport::numbers_of(std::size_t group, const PickleValue& dict) const {
  const PickleValue* const params = find(dict, "params");
  std::vector<std::int64_t> numbers;
  if (params != nullptr && is_sequence(*params)) {
    for (const PickleValue* const item : params->items) {
      if (item->kind == PickleValue::Kind::integer) numbers.push_back(item->integer);
    }
  }
  if (params == nullptr || numbers.size() != params->items.size()) {
    refuse_it("has no list of numbers 'params' in group " + std::to_string(group));
  }
  if (numbers.size() != groups_[group].size()) {
    refuse_it("has " + count_text(numbers.size(), "parameter") + " in group " + std::to_string(group) +
              " and the checkpoint " + std::to_string(groups_[group].size()) +
              ": give Python's optimizer the same parameters in the same order");
  }
  return numbers;
}

const AttributeValue* OptimizerImport::present(std::size_t group, const std::string& option) const {
  const Attribute* const now = draft_.attributes.find(prefix_of(group) + "now." + option);
  const Attribute* const chosen = draft_.attributes.find(prefix_of(group) + option);
  if (now != nullptr) return &now->value;
  return chosen != nullptr ? &chosen->value : nullptr;
}

bool OptimizerImport::is_on(std::size_t group, std::string_view option) const {
  const AttributeValue* const value = present(group, std::string(option));
  if (value == nullptr) return false;
  const auto* const flag = std::get_if<bool>(value);
  const auto* const number = std::get_if<double>(value);
  return (flag != nullptr && *flag) || (number != nullptr && *number > 0);
}

// False: the checkpoint's optimizer has no such option.
bool OptimizerImport::take_own_option(std::size_t group, const std::string& option,
                                      const PickleValue& value) {
  if (option == "parameters" || option == "steps" || option.starts_with("now.")) return false;
  const AttributeValue* const before = present(group, option);
  if (before == nullptr) return false;
  const std::string name = prefix_of(group) + "now." + option;
  const auto* const text = std::get_if<std::string>(before);
  const bool none = text != nullptr && *text == "none";
  if (none && is_none(&value)) return true;
  const auto taken = none ? std::nullopt : value_like(value, *before);
  const auto* const list = std::get_if<std::vector<double>>(before);
  const bool fits =
      taken && (list == nullptr || std::get<std::vector<double>>(*taken).size() == list->size());
  if (fits && same_bits(*taken, *before)) return true;
  // Floats may change, as by a schedule. The rest decides which state there is, and is the program's choice.
  const bool changes = std::holds_alternative<double>(*before) || list != nullptr;
  if (!fits || !changes) {
    refuse_it("has another '" + printable(option) + "' in group " + std::to_string(group) + ": " +
              (taken ? to_text(*taken) : std::string(kind_text(value))) + " in it, and " + to_text(*before) +
              " in the checkpoint; make both with the same one");
  }
  const Attribute* const chosen = draft_.attributes.find(prefix_of(group) + option);
  if (chosen != nullptr && same_bits(*taken, chosen->value)) {
    draft_.attributes.erase(name);
  } else {
    draft_.attributes.set(name, *taken);
  }
  return true;
}

void OptimizerImport::take_options(std::size_t group, const PickleValue& dict) {
  const TextMembers options = text_members(dict);
  const auto expect_flag = [&](const char* option, bool here) {
    const auto found = options.find(option);
    const bool there = found != options.end() && is_flag(*found->second, true);
    if (there == here) return;
    refuse_it("has '" + std::string(option) + "' " + (there ? "on" : "off") + " in group " +
              std::to_string(group) + ", and the checkpoint " + (here ? "on" : "off") + ": the " + type_ +
              " of the checkpoint cannot change it; make both alike");
  };
  expect_flag("maximize", draft_.attributes.has(name_ + ".maximize"));
  // PyTorch's AdamW is an Adam with this option since 2.6.
  if (options.contains("decoupled_weight_decay")) expect_flag("decoupled_weight_decay", type_ == "AdamW");
  const std::set<std::string_view> sorted = [&] {
    std::set<std::string_view> names;
    for (const auto& [name, value] : options) names.insert(name);
    return names;
  }();
  for (const std::string_view option : sorted) {
    if (option == "params" || option == "maximize" || option == "decoupled_weight_decay") continue;
    const PickleValue& value = *options.at(option);
    if (take_own_option(group, std::string(option), value)) continue;
    if (std::find(kIgnoredOptions.begin(), kIgnoredOptions.end(), option) == kIgnoredOptions.end()) {
      refuse_it("has the option '" + printable(option) + "' in group " + std::to_string(group) +
                ", for which the " + type_ +
                " of the checkpoint has no place: save the same kind of optimizer, or delete that option");
    }
    const bool is_off = is_none(&value) || is_flag(value, false);
    if (!is_off) draft_.ignored_options.insert(std::string(option));
  }
}

void OptimizerImport::take_states(const std::vector<std::vector<std::int64_t>>& numbers,
                                  const States& states) {
  if (kind_named(type_) == nullptr) refuse_it("is of a kind that no import knows: " + printable(type_));
  std::unordered_map<std::string, std::int64_t> steps_of;  // by parameter
  std::unordered_set<std::int64_t> used;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    std::vector<std::int64_t> steps;
    for (std::size_t i = 0; i < groups_[g].size(); ++i) {
      const std::string& parameter = groups_[g][i];
      const auto state = states.find(numbers[g][i]);
      if (state != states.end()) used.insert(state->first);
      // A parameter that is listed twice has one state, under its first number.
      if (const auto earlier = steps_of.find(parameter); earlier != steps_of.end()) {
        steps.push_back(earlier->second);
        continue;
      }
      std::int64_t count = state != states.end() ? take_state(g, parameter, *state->second) : -1;
      if (count < 0 && stays_stateless(g, i)) count = 0;
      steps.push_back(count);
      steps_of.emplace(parameter, count);
    }
    draft_.attributes.set(prefix_of(g) + "steps", std::move(steps));
  }
  for (const auto& [number, state] : states) {
    if (!used.contains(number)) {
      refuse_it("has a state for parameter " + std::to_string(number) + ", which is in no group of it");
    }
  }
}

// A state without a slot and without a count: the export writes none, and the checkpoint has one.
bool OptimizerImport::stays_stateless(std::size_t group, std::size_t position) const {
  const KindOfOptimizer& kind = *kind_named(type_);
  const Attribute* const steps = draft_.like().attributes.find(prefix_of(group) + "steps");
  const auto* const counts =
      steps != nullptr ? std::get_if<std::vector<std::int64_t>>(&steps->value) : nullptr;
  if (kind.counts || counts == nullptr || position >= counts->size() || (*counts)[position] != 0)
    return false;
  return std::none_of(kind.slots.begin(), kind.slots.end(), [&](const SlotOfKind& slot) {
    return draft_.find(name_ + "/" + std::string(slot.name) + "/" + groups_[group][position]) != nullptr;
  });
}

// The count of updates; -1: there is no state, because the parameter was never updated.
std::int64_t OptimizerImport::take_state(std::size_t group, const std::string& parameter,
                                         const PickleValue& state) {
  const KindOfOptimizer& kind = *kind_named(type_);
  TextMembers members = text_members(state);
  std::erase_if(members, [](const auto& member) { return is_none(member.second); });
  if (members.empty()) return -1;
  for (const SlotOfKind& slot : kind.slots) {
    if (slot.name.empty()) continue;
    const auto found = members.find(slot.name);
    if (found != members.end()) {
      const std::string name(slot.name);
      take_slot(name_ + "/" + name + "/" + parameter, *found->second, wanted_slot(name, parameter));
      members.erase(found);
    } else if (slot.option.empty() || is_on(group, slot.option)) {
      refuse_it("has a state of '" + printable(parameter) + "' without '" + std::string(slot.name) +
                "', which the " + type_ + " of the checkpoint needs: save the same kind of optimizer");
    }
  }
  std::int64_t steps = 0;
  if (kind.counts) {
    const auto found = members.find("step");
    const auto count = found != members.end() ? draft_.number("step", *found->second) : std::nullopt;
    if (!count || !(*count >= 0 && *count <= kMostSteps) || *count != std::floor(*count)) {
      refuse_it("has no count of updates 'step' in the state of '" + printable(parameter) + "'");
    }
    steps = static_cast<std::int64_t>(*count);
    members.erase(found);
  }
  if (!members.empty()) {
    refuse_it("has '" + printable(members.begin()->first) + "' in the state of '" + printable(parameter) +
              "', for which the " + type_ +
              " of the checkpoint has no place: save the same kind of optimizer");
  }
  return steps;
}

void OptimizerImport::take_slot(const std::string& name, const PickleValue& value,
                                const std::vector<TensorSpec>& wanted) {
  draft_.take(name, value, wanted);
  ++slots_;
}

// What belongs to no parameter. load_state_dict() of Python's optimizers forgets it: then the checkpoint's
// stays.
void OptimizerImport::take_others(const PickleValue& dict) {
  for (const auto& [key, value] : text_members(dict)) {
    const std::string name = name_ + "/" + std::string(key);
    const TensorSpec* const own = draft_.find(name);
    const std::size_t slash = key.find('/');
    const bool of_parameter =
        slash != std::string_view::npos && parameters_.contains(std::string(key.substr(slash + 1)));
    if (own == nullptr || of_parameter) {
      refuse_it("has '" + printable(key) + "' among its other slots, and the checkpoint has none");
    }
    take_slot(name, *value, {*own});
  }
}

}}}  // namespace holdfast::v0_2::internal
