// The form with which a run started (state_form.h), and whether the state still has it.
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/state/internal/state_form.h"
#include "holdfast/state/internal/train_state_parts.h"
#include "holdfast/state/tensor_bytes.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using internal::StateForm;
using Described = std::map<std::string, std::string>;

constexpr std::size_t kMostDifferences = 8;
constexpr char kMakeBefore[] =
    "make, register, tie, cast or move it before resume(), also if a later phase is the first to train it "
    "(requires_grad_(false) until then)";
constexpr char kKeepShape[] =
    "add its module with {.may_change_shape = true}, keep its shape (room for the largest, and a count), or "
    "keep it in a component with save() and load() (state/stateful.h)";
constexpr char kMakeGroup[] =
    "make the group before resume(), also if a later phase is the first to train it (requires_grad_(false) "
    "until then), or add the optimizer with {.may_append_groups = true}";
constexpr char kPutOption[] =
    "an option is compared and never restored: put() what changes (state/stateful.h)";
constexpr char kKeepSlots[] = "change a slot as its parameter, and keep its class";

// What differs, and what to do about it.
struct Differences {
  std::vector<std::string> texts;
  std::vector<std::string> remedies;

  void add(std::string text, const char* remedy) {
    texts.push_back(std::move(text));
    if (std::find(remedies.begin(), remedies.end(), remedy) == remedies.end()) remedies.emplace_back(remedy);
  }
  void compare(const Described& now, const Described& start, const char* remedy) {
    for (const auto& [name, what] : now) {
      const auto was = start.find(name);
      if (was == start.end()) {
        add(name + " (" + what + ") is new", remedy);
      } else if (was->second != what) {
        add(name + " is " + what + " and was " + was->second, remedy);
      }
    }
    for (const auto& [name, what] : start) {
      if (!now.contains(name)) add(name + " (" + what + ") is gone", remedy);
    }
  }
};

Described tensors_of(const StateForm& form) {
  Described described;
  for (const TensorSpec& spec : form.tensors) {
    described[spec.name] = form.any_shape.contains(spec.name)
                               ? std::string(name_of(spec.dtype)) + " of any shape"
                               : internal::type_and_shape(spec);
  }
  for (const auto& [name, target] : form.aliases) described[name] = "the same tensor as " + target;
  return described;
}

// Takes the tensors whose shape alone has changed out of both.
void compare_shapes(const StateForm& form, Described& now, Described& start, Differences& out) {
  for (const TensorSpec& spec : form.tensors) {
    const auto is = now.find(spec.name), was = start.find(spec.name);
    const std::string type = std::string(name_of(spec.dtype)) + " ";
    if (was == start.end() || was->second == is->second || !was->second.starts_with(type)) continue;
    out.add(spec.name + " is " + is->second + " and was " + was->second, kKeepShape);
    now.erase(is);
    start.erase(was);
  }
}

// A load appends the groups that are new.
bool has_appended(const StateForm::Optimizer& now, const StateForm::Optimizer& then) {
  return now.may_append_groups && now.groups.size() > then.groups.size() &&
         std::equal(then.groups.begin(), then.groups.end(), now.groups.begin());
}

void compare_optimizers(const StateForm& form, const StateForm& start, Differences& out) {
  const auto described = [](const StateForm::Optimizer& optimizer) {
    Described parameters;
    for (std::size_t g = 0; g < optimizer.groups.size(); ++g) {
      for (const std::string& name : optimizer.groups[g]) {
        std::string& groups = parameters["parameter " + name + " of '" + optimizer.name + "'"];
        groups += (groups.empty() ? "in group " : " and ") + std::to_string(g);
      }
    }
    return parameters;
  };
  for (std::size_t i = 0; i < form.optimizers.size(); ++i) {
    const StateForm::Optimizer &now = form.optimizers[i], &then = start.optimizers[i];
    if (now == then || has_appended(now, then)) continue;
    const std::size_t before = out.texts.size();
    if (now.groups.size() != then.groups.size()) {
      out.add("'" + now.name + "' has " + std::to_string(now.groups.size()) + " parameter groups and had " +
                  std::to_string(then.groups.size()),
              kMakeGroup);
    } else {
      out.compare(described(now), described(then), kMakeBefore);
    }
    if (out.texts.size() == before) {
      out.add("'" + now.name + "' has its parameters in another order", kMakeBefore);
    }
  }
}

// With the module's name, which an optimizer's own names have only if it trains several modules.
std::vector<std::vector<std::string>> full_names(const OptimizerState& part, const ModuleInventory& modules) {
  std::vector<std::vector<std::string>> groups;
  for (const auto& group : part.optimizer().param_groups()) {
    auto& names = groups.emplace_back();
    for (const at::Tensor& parameter : group.params()) {
      const ParameterName& name = modules.parameters.at(parameter.unsafeGetTensorImpl());
      names.push_back(name.module + "/" + name.dotted);
    }
  }
  return groups;
}

bool same_options(const StateForm& a, const StateForm& b) {
  return std::equal(
      a.options.begin(), a.options.end(), b.options.begin(), b.options.end(),
      [](const auto& x, const auto& y) { return x.first == y.first && same_bits(x.second, y.second); });
}

void compare_options(const StateForm& form, const StateForm& start, Differences& out) {
  const auto described = [&](const StateForm& one) {
    Described options;
    for (const auto& [name, value] : one.options) {
      // Those of an optimizer with other groups say nothing new.
      const bool told =
          std::any_of(form.optimizers.begin(), form.optimizers.end(), [&](const auto& optimizer) {
            return name.starts_with(optimizer.name + ".") &&
                   std::find(start.optimizers.begin(), start.optimizers.end(), optimizer) ==
                       start.optimizers.end();
          });
      if (!told) options["option " + name] = to_text(value);
    }
    return options;
  };
  out.compare(described(form), described(start), kPutOption);
}

// The list shares the module's tensors, so further holders of the memory are views.
bool shares_memory(const at::Tensor& tensor) {
  return tensor.numel() > 0 && tensor.storage().use_count() > 1;
}

}  // namespace

internal::StateForm TrainState::State::form_of(const List& list, const Look& look) const {
  StateForm form;
  form.tensors.reserve(list.modules.tensors.size());
  for (const ModuleTensor& item : list.modules.tensors) {
    form.tensors.push_back(spec_of(item.name, item.tensor));
    if (!item.may_change_shape) continue;
    form.tensors.back().shape.clear();
    form.any_shape.insert(item.name);
  }
  form.aliases = list.modules.aliases;
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    const bool may_append = optimizers[i].may_append_groups();
    form.optimizers.push_back(
        {optimizers[i].name(),
         may_append ? full_names(optimizers[i], list.modules) : list.optimizers[i].parameters, may_append});
  }
  for (const std::string& name : look.options) {
    form.options.emplace_back(name, look.attributes.find(name)->value);
  }
  form.gpus = gpus.size();
  return form;
}

void TrainState::State::check_form(const internal::StateForm& start, const List& list,
                                   const Look& look) const {
  const StateForm form = form_of(list, look);
  Differences all;
  if (form.tensors != start.tensors || form.aliases != start.aliases) {
    Described now = tensors_of(form), then = tensors_of(start);
    compare_shapes(form, now, then, all);
    all.compare(now, then, kMakeBefore);
  }
  // After a load on a CPU the streams of a GPU would stand where the program's seed has put them.
  if (form.gpus > start.gpus) {
    for (const ModuleTensor& item : list.modules.tensors) {
      if (!item.tensor.is_cuda() || item.tensor.get_device() != gpus.back()) continue;
      all.add(item.name + " is on " + item.tensor.device().str() + ", where nothing was", kMakeBefore);
      break;
    }
  }
  if (!start.strides.empty()) {
    for (const ModuleTensor& item : list.modules.tensors) {
      const auto was = start.strides.find(item.name);
      if (was == start.strides.end() || item.tensor.strides() == at::IntArrayRef(was->second)) continue;
      all.add(item.name + " has the strides " + shape_text(item.tensor.strides()) + " and had " +
                  shape_text(was->second) + " in memory that it shared",
              kMakeBefore);
    }
  }
  compare_optimizers(form, start, all);
  if (!same_options(form, start)) compare_options(form, start, all);
  for (const OptimizerInventory& optimizer : list.optimizers) {
    for (const std::string& misfit : optimizer.misfits) all.add(misfit, kKeepSlots);
  }
  if (all.texts.empty()) return;
  throw UnsavableError("no start could resume from this state, because it has changed since resume(): " +
                       internal::joined(all.texts, kMostDifferences) +
                       ". A start makes all parts as this one did, and then loads: " +
                       internal::joined(all.remedies, all.remedies.size()));
}

void TrainState::State::check_form_is_open(const std::string& what) const {
  if (form.expired()) return;
  throw UsageError(
      what +
      " comes after resume(): a start would load the checkpoint without it. Make and add every part "
      "before resume(), also one that a later phase is the first to use");
}

std::shared_ptr<const void> TrainState::State::fix_form() {
  const auto list = list_tensors();
  auto fixed = std::make_shared<StateForm>(form_of(*list, look_at_attributes(*list)));
  for (const ModuleTensor& item : list->modules.tensors) {
    if (item.may_change_shape) continue;
    if (shares_memory(item.tensor)) fixed->strides.emplace(item.name, item.tensor.strides().vec());
  }
  form = fixed;
  return fixed;
}

}}  // namespace holdfast::v0_2
