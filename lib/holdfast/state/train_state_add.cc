// What the program adds to its state, and which names it may give.
#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/base/utf8.h"
#include "holdfast/state/internal/component_io.h"
#include "holdfast/state/internal/train_state_parts.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// First parts of the names that TrainState and the Checkpointer write themselves.
constexpr std::array<std::string_view, 9> kReserved = {"step", "skipped", "cursor", "state", "environment",
                                                       "run",  "rng",     "rank",   "meta"};

bool reserved(std::string_view name) {
  return std::find(kReserved.begin(), kReserved.end(), name) != kReserved.end();
}

// A file, like a path in Python, has one name space for tensors and the folders that hold them.
void refuse_clashes(const std::string& part, const TrainState::Component& component) {
  std::vector<TensorSpec> specs;
  try {
    internal::SpecWriter writer(part, specs);
    component.save(writer);
  } catch (const std::exception&) {
    return;  // the program may complete the component until resume(), which asks again
  }
  std::set<std::string> names;
  for (const TensorSpec& spec : specs) names.insert(spec.name);
  for (const std::string& name : names) {
    for (std::size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1)) {
      const std::string folder = name.substr(0, slash);
      if (!names.contains(folder)) continue;
      throw UsageError("'" + printable(name) + "' cannot be stored, because '" + printable(folder) +
                       "' is a tensor and no folder: save() must rename one of the two");
    }
  }
}

}  // namespace

// Readers find a part by its name: in names of tensors it ends at the first '/', in those of attributes at
// the first '.'.
void TrainState::State::check_new_name(const std::string& name) const {
  check_form_is_open("part '" + printable(name) + "'");
  if (name.empty() || !is_utf8(name) || has_control(name) || name.find_first_of("/.") != std::string::npos) {
    throw UsageError("'" + printable(name) +
                     "' cannot name a part of the state: no '/', '.' or control characters");
  }
  if (reserved(name)) throw UsageError("'" + name + "' is a name of the state's own: choose another");
  for (const std::string& part : parts()) {
    if (part.substr(part.find(' ') + 1) == name)
      throw UsageError("the state has a part '" + name + "' already");
  }
}

void TrainState::add(const std::string& name, torch::nn::Module& module) { add(name, module, {}); }

void TrainState::add(const std::string& name, torch::nn::Module& module, const ModuleOptions& options) {
  state_->check_new_name(name);
  auto modules = state_->modules;
  modules.push_back({name, &module, options});
  // Tried on a copy: a module that is refused leaves the state as it was.
  static_cast<void>(take_inventory(modules));
  state_->frozen.add(name, options);
  state_->modules = std::move(modules);
  state_->modes.emplace_back();
  state_->held.reset();
  state_->buffers.remember(state_->modules.back());
}

void TrainState::add(const std::string& name, torch::optim::Optimizer& optimizer) {
  add(name, optimizer, {});
}

void TrainState::add(const std::string& name, torch::optim::Optimizer& optimizer,
                     const OptimizerOptions& options) {
  state_->check_new_name(name);
  OptimizerState part(name, optimizer, options);
  // Throws for parameters of no added module, before the state has changed.
  static_cast<void>(part.take_inventory(take_inventory(state_->modules)));
  state_->optimizers.push_back(std::move(part));
  state_->held.reset();
}

void TrainState::add_generator(const std::string& name, at::Generator& generator) {
  state_->check_new_name(name);
  if (name == "cpu" || name.starts_with("cuda")) {
    throw UsageError("'" + name + "' is the name of a default generator, which is part of the state already");
  }
  if (!generator.defined()) throw UsageError("generator '" + name + "' is undefined");
  state_->generators.push_back({name, generator});
}

void TrainState::add_component(const std::string& name, std::unique_ptr<Component> component) {
  state_->check_new_name(name);
  if (!component->spread()) refuse_clashes(name, *component);
  Component& added = *component;
  state_->data_sources.reserve(state_->data_sources.size() + 1);
  state_->components.push_back({name, std::move(component)});
  if (added.delivers_data()) state_->data_sources.push_back(&added);
}

void TrainState::option(const std::string& name, AttributeValue value) {
  state_->check_form_is_open("option '" + printable(name) + "'");
  if (reserved(name.substr(0, name.find('.')))) {
    throw UsageError("an option cannot be named '" + name + "': that is the state's own");
  }
  for (const auto& [known, old] : state_->options) {
    if (known == name) throw UsageError("option '" + name + "' is declared twice");
  }
  Attributes().set(name, value);  // throws now if the value cannot be stored
  state_->options.emplace_back(name, std::move(value));
}

void TrainState::layout_option(const std::string& name, AttributeValue value) {
  option(name, std::move(value));
  state_->layout_options.push_back(name);
}

}}  // namespace holdfast::v0_2
