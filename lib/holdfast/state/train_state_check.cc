#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/state/internal/train_state_parts.h"
#include "holdfast/state/tensor_bytes.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using Texts = std::vector<std::string>;

constexpr std::size_t kMostTexts = 24;  // texts of a message: a completely different model would fill screens

void append(Texts& to, Texts from) { std::move(from.begin(), from.end(), std::back_inserter(to)); }

// "module ema" -> "'ema' (module)"
std::string part_text(const std::string& part) {
  const std::size_t blank = part.find(' ');
  return "'" + part.substr(blank + 1) + "' (" + part.substr(0, blank) + ")";
}

Texts missing_parts(const Texts& wanted, const Texts& among, const char* where) {
  Texts texts;
  for (const std::string& part : wanted) {
    if (std::find(among.begin(), among.end(), part) == among.end()) texts.push_back(part_text(part) + where);
  }
  return texts;
}

// True for an option of a part that is missing or different: the message names that part already.
bool belongs_to(const std::string& option, const std::set<std::string>& parts) {
  const std::size_t dot = option.find('.');
  return dot != std::string::npos && parts.contains(option.substr(0, dot));
}

// Old checkpoints record the samples of one pass as `batch_size`, and the number of passes as an option.
// Today `batch_size` counts the whole update, and `accumulation` is a note. Converts the old value.
AttributeValue in_words_of_today(const std::string& name, const AttributeValue& there,
                                 const Attributes& recorded, const Texts& recorded_options,
                                 const Texts& options_here) {
  constexpr std::string_view kOption = "batch_size";
  if (name != kOption && !name.ends_with("." + std::string(kOption))) return there;
  const std::string passes = name.substr(0, name.size() - kOption.size()) + "accumulation";
  const auto lists = [&](const Texts& list) {
    return std::find(list.begin(), list.end(), passes) != list.end();
  };
  if (!lists(recorded_options) || lists(options_here) || !recorded.has(passes)) return there;
  const auto* const samples = std::get_if<std::int64_t>(&there);
  std::int64_t update = 0;
  // An overflow comes from a hostile file, and the comparison then fails as it should.
  if (samples == nullptr || __builtin_mul_overflow(*samples, recorded.get_int(passes), &update)) return there;
  return update;
}

}  // namespace

namespace internal {

std::string type_and_shape(const TensorSpec& spec) {
  return std::string(name_of(spec.dtype)) + " " + shape_text(spec.shape);
}

std::string joined(const std::vector<std::string>& texts, std::size_t most) {
  std::string all;
  for (std::size_t i = 0; i < texts.size() && i < most; ++i) all += (i ? "; " : "") + texts[i];
  if (texts.size() > most) all += "; and " + std::to_string(texts.size() - most) + " more";
  return all;
}

std::vector<std::int64_t> recorded_strides(const std::string& tensor, at::IntArrayRef shape,
                                           const Attributes& recorded) {
  const std::string name = attribute_of(tensor, "strides");
  if (recorded.has(name)) return recorded.get_ints(name);
  // Only unusual strides are recorded, so these are a contiguous tensor's.
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = strides.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * std::max<std::int64_t>(shape[i], 1);
  }
  return strides;
}

std::vector<std::string> module_differences(std::span<const NamedModule> modules,
                                            const ModuleInventory& inventory,
                                            std::span<const TensorSpec> tensors, const Attributes& recorded,
                                            bool strides) {
  // Every name, tied ones included: its tensor, and the name under which the file stores it.
  // By name, because a tied tensor may be stored under any of its names.
  std::map<std::string, std::pair<const TensorSpec*, std::string>> there;
  for (const NamedModule& module : modules) {
    for (const TensorSpec& spec : tensors) {
      if (spec.name.starts_with(module.name + "/")) there[spec.name] = {&spec, spec.name};
    }
  }
  for (const NamedModule& module : modules) {
    const std::string prefix = module.name + ".alias.";
    for (const auto& [attribute, value] : recorded.with_prefix(prefix)) {
      const auto* const target = std::get_if<std::string>(&value.value);
      const auto stored = target ? there.find(*target) : there.end();
      if (stored == there.end()) continue;
      there[module.name + "/" + attribute.substr(prefix.size())] = {stored->second.first, *target};
    }
  }

  Texts texts;
  std::set<std::string> here;
  const auto compare = [&](const std::string& name, const std::string& stored, const ModuleTensor& item) {
    here.insert(name);
    const TensorSpec spec = spec_of(name, item.tensor);
    const auto found = there.find(name);
    if (found == there.end()) {
      texts.push_back(name + " (" + type_and_shape(spec) + ") is missing in the checkpoint");
      // Nothing more can be compared.
      return;
    }
    const auto& [other, other_stored] = found->second;
    if (other->dtype != spec.dtype || (other->shape != spec.shape && !item.may_change_shape)) {
      texts.push_back(name + " is " + type_and_shape(spec) + " here and " + type_and_shape(*other) +
                      " in the checkpoint");
    } else if (stored != other_stored) {
      const auto tie = [&](const std::string& target) {
        return target == name ? std::string("a tensor of its own") : "the same tensor as " + target;
      };
      texts.push_back(name + " is " + tie(stored) + " here and " + tie(other_stored) + " in the checkpoint");
    } else if (strides && name == stored && item.tensor.numel() > 0 && !item.may_change_shape) {
      const auto wanted = recorded_strides(item.name, item.tensor.sizes(), recorded);
      // Restoring strides replaces the tensor's memory; a shared one would no longer be shared.
      if (item.tensor.strides() != at::IntArrayRef(wanted) && item.tensor.storage().use_count() > 1) {
        texts.push_back(name + " shares its memory, so its strides " + shape_text(item.tensor.strides()) +
                        " cannot become the recorded " + shape_text(wanted));
      }
    }
  };
  std::map<std::string, const ModuleTensor*> by_name;
  for (const ModuleTensor& item : inventory.tensors) {
    by_name.emplace(item.name, &item);
    compare(item.name, item.name, item);
  }
  for (const auto& [name, target] : inventory.aliases) compare(name, target, *by_name.at(target));
  for (const auto& [name, found] : there) {
    if (here.contains(name)) continue;
    texts.push_back(name + " (" + type_and_shape(*found.first) +
                    ") is in the checkpoint and not in this model");
  }
  return texts;
}

}  // namespace internal

bool TrainState::State::own_layout(const Overrides& overrides) const {
  return !overridden(layout_options, overrides).empty();
}

bool TrainState::State::may_be_new(std::string_view part) const {
  return std::any_of(components.begin(), components.end(), [&](const Part& known) {
    return "component " + known.name == part && known.component->may_be_new();
  });
}

void TrainState::check(std::span<const TensorSpec> tensors, const Attributes& attributes,
                       const Overrides& overrides) {
  const auto list = state_->list_tensors();
  const ModuleInventory& inventory = list->modules;
  const State::Look now = state_->look_at_attributes(*list);
  // Refuses a file that no TrainState wrote.
  static_cast<void>(attributes.get_int("step"));

  // Everything is compared before anything is reported: a user wants all differences at once.
  Texts structure;  // differences that no override can accept
  const Texts parts = state_->parts();
  Texts wanted = parts;
  std::erase_if(wanted, [&](const std::string& part) { return state_->may_be_new(part); });
  const Texts& recorded_parts = attributes.get_strings("state.parts");
  append(structure, missing_parts(wanted, recorded_parts, " is not in the checkpoint"));
  Texts not_added = missing_parts(recorded_parts, parts, " is in the checkpoint and not added here");
  bool lacks = !not_added.empty();  // the program has not made what the checkpoint has
  append(structure, std::move(not_added));
  std::set<std::string> unlike;  // parts that differ as a whole, so that comparing their options adds nothing
  for (const Texts* list : {&parts, &recorded_parts}) {
    for (const std::string& part : *list) {
      const Texts& other = list == &parts ? recorded_parts : parts;
      if (std::find(other.begin(), other.end(), part) == other.end())
        unlike.insert(part.substr(part.find(' ') + 1));
    }
  }

  append(structure, internal::module_differences(state_->modules, inventory, tensors, attributes,
                                                 !state_->own_layout(overrides)));
  for (const OptimizerState& part : state_->optimizers) {
    if (unlike.contains(part.name())) continue;
    Texts texts = part.differences(inventory, tensors, attributes);
    lacks = lacks || part.groups_missing(attributes) > 0;
    if (!texts.empty()) unlike.insert(part.name());
    append(structure, std::move(texts));
  }
  state_->find_gpus(inventory);
  for (const NamedGenerator& stream : state_->streams()) {
    const std::string name = internal::recorded_name(stream, tensors);
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const TensorSpec& spec) { return spec.name == name; });
    // An optional stream, of a GPU that the recorded machine lacked, keeps its own state.
    if (unlike.contains(stream.name) || (found == tensors.end() && stream.optional)) continue;
    if (found == tensors.end()) {
      structure.push_back(name + " is missing in the checkpoint");
    } else if (*found != spec_of(name, rng_state(stream))) {
      structure.push_back(name + " is of another kind of generator");
    }
  }

  Texts options;
  const Texts& recorded_options = attributes.get_strings(kStateOptions);
  const auto accepted = [&](const std::string& name) {
    // Options of a part that differs as a whole say nothing new.
    return belongs_to(name, unlike) || !overridden({name}, overrides).empty();
  };
  for (const std::string& name : now.options) {
    if (accepted(name)) continue;
    const AttributeValue& here = now.attributes.find(name)->value;
    const Attribute* const there = attributes.find(name);
    if (!there) {
      options.push_back(name + " is " + to_text(here) + " here and was not recorded");
      continue;
    }
    const AttributeValue was =
        in_words_of_today(name, there->value, attributes, recorded_options, now.options);
    if (!same_bits(here, was)) {
      options.push_back(name + " is " + to_text(here) + " here and " + to_text(was) + " in the checkpoint");
    }
  }
  const auto appended = [&](const std::string& name) {
    return std::any_of(state_->optimizers.begin(), state_->optimizers.end(),
                       [&](const OptimizerState& part) { return part.appends(name); });
  };
  for (const std::string& name : recorded_options) {
    if (accepted(name) || now.attributes.has(name) || appended(name)) continue;
    const Attribute* const there = attributes.find(name);
    options.push_back(name + " was " + (there ? to_text(there->value) : "set") + " and is not set here");
  }
  if (structure.empty() && options.empty()) return;

  std::string message = "refused: this program would not go on where the checkpoint stopped: ";
  message += internal::joined(options, options.size());
  if (!options.empty() && !structure.empty()) message += "; ";
  message += internal::joined(structure, kMostTexts);
  if (!options.empty()) {
    // Each of these texts begins with the full name of an option. An override may name it by its last word
    // alone.
    const std::string& first = options.front();
    const std::string name = first.substr(0, first.find(' '));
    const std::string last = name.substr(name.rfind('.') + 1);
    message +=
        ". Use the recorded options, or accept a difference: CheckpointerOptions::start.overrides names what "
        "may differ, such as \"" +
        last + "\" (in Holdfast's example --override " + last + ")";
  }
  if (!structure.empty()) {
    message +=
        lacks ? ". Make and add before resume() what the checkpoint has (Checkpointer::peek() tells it), or "
                "use the program that wrote it"
              : ". Use the program that wrote it";
  }
  throw RefusedError(message + ", or another directory");
}

}}  // namespace holdfast::v0_2
