#include "holdfast/state/train_state.h"

#include <algorithm>
#include <set>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/state/internal/component_io.h"
#include "holdfast/state/internal/environment.h"
#include "holdfast/state/internal/late_tensors.h"
#include "holdfast/state/internal/train_state_parts.h"
#include "holdfast/state/internal/wanted_part.h"
#include "holdfast/state/stager.h"
#include "holdfast/state/tensor_bytes.h"

namespace holdfast { inline namespace v0_2 {
namespace {

void set_new(Attributes& out, std::string name, AttributeValue value, Role role = Role::decides) {
  // Two parts under one name would overwrite each other without a word.
  if (out.has(name)) throw UsageError("the state writes '" + name + "' twice");
  out.set(std::move(name), std::move(value), role);
}

void add_wanted(Stager& stager, std::vector<at::Tensor>& held, const internal::WantedPart& part) {
  if (part.to.empty()) return;
  stager.add(part.tensor, part.to);
  held.push_back(part.tensor);
}

internal::WantedPart place_of(const std::string& name, const at::Tensor& tensor, const ImageLayout& layout,
                              std::span<std::byte> image) {
  const auto index = layout.find(name);
  if (!index || layout.tensors()[*index] != spec_of(name, tensor)) {
    throw Error("tensor '" + name + "' has changed since the image was laid out");
  }
  return internal::wanted_part(tensor, layout, *index, image);
}

}  // namespace

bool TrainState::State::has_module(std::string_view name) const {
  return std::any_of(modules.begin(), modules.end(),
                     [&](const NamedModule& part) { return part.name == name; });
}

std::vector<std::string> TrainState::State::parts() const {
  std::vector<std::string> parts;
  for (const auto& part : modules) parts.push_back("module " + part.name);
  for (const auto& part : optimizers) parts.push_back("optimizer " + part.name());
  for (const auto& part : components) parts.push_back("component " + part.name);
  for (const auto& part : generators) parts.push_back("generator " + part.name);
  return parts;
}

// A save may fall into an evaluation that has called eval(): a run that resumed so would train without
// dropout.
const std::vector<std::string>& TrainState::State::modes_of(std::size_t module) {
  const auto& [name, live, options] = modules[module];
  Modes& known = modes[module];
  if (known.training.value_or(live->is_training()) == live->is_training()) {
    known.evaluating = evaluating_in(*live);
  } else if (!std::exchange(modes_told, true)) {
    log_warning(
        "step {} is saved while module '{}' is in {}() and not as after_step() found it: the checkpoint has "
        "the modes of the save before. Make an EvaluationScope before {}(): it keeps those of this step",
        step, name, live->is_training() ? "train" : "eval", live->is_training() ? "train" : "eval");
  }
  return known.evaluating;
}

TrainState::State::Look TrainState::State::look_at_attributes(const List& list) {
  const ModuleInventory& inventory = list.modules;
  Look look;
  Attributes& out = look.attributes;
  out.set("step", step);
  if (skipped > 0) out.set("skipped", skipped);  // absent in other runs: their checkpoints keep their bytes
  out.set("cursor.epoch", cursor.epoch);
  out.set("cursor.samples", cursor.samples);
  internal::or_unsavable([&] {
    put_module_attributes(modules, inventory, out);
    for (std::size_t i = 0; i < modules.size(); ++i) out.set(modules[i].name + ".evaluating", modes_of(i));
    frozen.put_attributes(inventory, out);
    for (std::size_t i = 0; i < optimizers.size(); ++i) {
      optimizers[i].put_attributes(list.optimizers[i], out, look.options);
    }
  });
  for (const Part& part : components) {
    internal::AttributeWriter writer(part.name, out, look.options);
    part.component->save(writer);
  }
  for (const auto& [name, value] : options) {
    set_new(out, name, value);
    look.options.push_back(name);
  }
  if (auto present = gradients_present(list); !present.empty()) {
    set_new(out, "state.gradients", std::move(present), Role::record);
  }
  set_new(out, "state.parts", parts(), Role::record);
  set_new(out, kStateOptions, look.options, Role::record);
  find_gpus(inventory);
  internal::put_environment(gpus, out);
  return look;
}

TrainState::TrainState() : state_(std::make_unique<State>()) {}
TrainState::~TrainState() = default;

Position TrainState::position() const { return {state_->step, state_->data_end}; }

std::int64_t TrainState::skipped() const { return state_->skipped; }

Cursor TrainState::cursor() const { return state_->cursor; }

std::vector<TensorSpec> TrainState::describe() {
  const auto list = state_->list_tensors();
  const ModuleInventory& inventory = list->modules;
  auto still = trained_by(state_->optimizers);
  for (const State::Part& part : state_->components) {
    for (const at::Tensor& tensor : part.component->trained()) still.insert(tensor.unsafeGetTensorImpl());
  }
  std::unordered_set<std::string> trained;
  std::unordered_set<std::string> replicated;
  std::vector<TensorSpec> specs;
  for (const ModuleTensor& item : inventory.tensors) {
    if (item.digested) continue;
    specs.push_back(spec_of(item.name, item.tensor));
    if (!item.buffer && still.contains(item.tensor.unsafeGetTensorImpl())) trained.insert(item.name);
  }
  const auto all_since = [&](std::size_t first, std::unordered_set<std::string>& names) {
    for (std::size_t i = first; i < specs.size(); ++i) names.insert(specs[i].name);
  };
  const std::size_t of_modules = specs.size();
  // From before the first update on, so that the draws of the first steps are heard.
  if (!state_->updated && !state_->drawn) state_->drawn = std::make_unique<internal::DrawnGenerators>();
  for (const OptimizerInventory& optimizer : list->optimizers) {
    for (const SlotTensor& slot : optimizer.slots) specs.push_back(spec_of(slot.name, slot.tensor));
  }
  all_since(of_modules, trained);
  for (const SlotTensor& gradient : state_->carried_gradients(*list)) {
    specs.push_back(spec_of(gradient.name, gradient.tensor));
  }
  for (const State::Part& part : state_->components) {
    const std::size_t before = specs.size();
    internal::SpecWriter writer(part.name, specs);
    part.component->save(writer);
    if (part.component->replicated()) all_since(before, replicated);
    if (!part.component->trained().empty()) all_since(before, trained);
  }
  state_->replicated = std::move(replicated);
  state_->trained = std::move(trained);
  state_->find_gpus(inventory);
  for (const NamedGenerator& stream : state_->streams()) {
    specs.push_back(spec_of("rng/" + stream.name, rng_state(stream)));
  }
  state_->in_cuda = std::any_of(inventory.tensors.begin(), inventory.tensors.end(),
                                [](const ModuleTensor& item) { return internal::in_cuda(item.tensor); });
  check_tensor_specs(specs);
  return specs;
}

void TrainState::State::copy_now(const ImageLayout& layout, std::span<std::byte> image, holdfast::Part part) {
  gradients.begin();
  Stager stager;
  // The stager needs every tensor until run() has returned. Streams and parts of tensors are made here, so
  // nobody else holds them.
  std::vector<at::Tensor> held;
  std::size_t seen = 0;
  const auto take = [&](const std::string& name, const at::Tensor& tensor, holdfast::Part when) {
    ++seen;
    const bool late = when == holdfast::Part::late || internal::in_cuda(tensor);
    if (late && part == holdfast::Part::early) return;
    add_wanted(stager, held, place_of(name, tensor, layout, image));
  };

  visit_tensors(take);
  for (const NamedGenerator& stream : streams()) {
    take("rng/" + stream.name, rng_state(stream), holdfast::Part::early);
  }
  components_in_cuda = false;
  for (const Part& component : components) {
    internal::ImageWriter writer(component.name, layout, image, part);
    component.component->save(writer);
    seen += writer.seen();
    components_in_cuda = components_in_cuda || writer.seen_in_cuda();
  }
  // An image is used again by later saves. A component that writes fewer tensors than before would leave an
  // older step's bytes in the new checkpoint.
  if (seen != layout.tensors().size()) {
    throw Error("the state has " + std::to_string(seen) + " tensors, the image was laid out for " +
                std::to_string(layout.tensors().size()));
  }
  stager.run();
}

void TrainState::State::copy_own(const ImageLayout& layout, std::span<std::byte> image) {
  Stager stager;
  std::vector<at::Tensor> held;
  for (const SlotTensor& gradient : carried_gradients(*list_tensors())) {
    add_wanted(stager, held, place_of(gradient.name, gradient.tensor, layout, image));
  }
  for (const NamedGenerator& stream : streams()) {
    add_wanted(stager, held, place_of("rng/" + stream.name, rng_state(stream), layout, image));
  }
  stager.run();
}

std::unique_ptr<LateCopy> TrainState::State::prepare(const ImageLayout& layout, std::span<std::byte> image,
                                                     NextUpdate update) {
  auto late = std::make_unique<internal::LateTensors>();
  internal::CudaTensors devices;
  visit_tensors([&](const std::string& name, const at::Tensor& tensor, holdfast::Part when) {
    const internal::WantedPart part = place_of(name, tensor, layout, image);
    if (part.to.empty()) return;
    if (internal::in_cuda(tensor)) {
      devices.add(name, part.tensor, part.to, when == holdfast::Part::early);
    } else if (when == holdfast::Part::late) {
      late->add(name, part.tensor, part.to);
    }
  });
  if (components_in_cuda) {
    for (const Part& component : components) {
      internal::ImageWriter writer(component.name, layout, image, devices);
      component.component->save(writer);
    }
  }
  // Only beside an announced update the copy may run too late. The samples then show that the state has
  // changed under it.
  if (update == NextUpdate::announced) late->keep_samples();
  if (devices.empty()) {
    if (update == NextUpdate::unannounced) late->run();  // the program has moved the state off its device
    return late;
  }
  if (!cuda) cuda = internal::make_cuda_staging();
  auto theirs = devices.begin(cuda, update);
  // Without an announcement nothing tells when the program changes host memory, so it is copied before this
  // returns.
  const bool now = update == NextUpdate::unannounced || late->empty();
  return join_copies(std::move(late), std::move(theirs), now);
}

std::unique_ptr<LateCopy> TrainState::copy(const ImageLayout& layout, std::span<std::byte> image, Part part) {
  switch (part) {
    case Part::late:
      return state_->prepare(layout, image, NextUpdate::announced);
    case Part::independent:
      return state_->prepare(layout, image, NextUpdate::unannounced);
    case Part::own:
      state_->copy_own(layout, image);
      return nullptr;
    default:
      state_->copy_now(layout, image, part);
      return nullptr;
  }
}

// Random streams are what ranks always differ in.
TensorRole TrainState::role(const TensorSpec& tensor) const {
  const std::string& name = tensor.name;
  const bool own = name.starts_with("rng/") || name.starts_with("state/gradient/");
  const bool trained = state_->trained.contains(name);
  const bool same = trained || state_->replicated.contains(name);
  return {.sharing = own    ? Sharing::own
                     : same ? Sharing::same
                            : Sharing::first,
          .trained = trained,
          .weight = state_->has_module(std::string_view(name).substr(0, name.find('/')))};
}

SourceTraits TrainState::traits() const {
  const auto& parts = state_->components;
  const bool spread = std::any_of(parts.begin(), parts.end(),
                                  [](const State::Part& part) { return part.component->spread(); });
  std::optional<Shard> shard;
  for (const Component* const source : state_->data_sources) shard = shard ? shard : source->shard();
  return {.on_device = state_->in_cuda,
          .may_change_form = state_->may_change_form(),
          .needs_others = spread && !state_->brought_together,
          .shard = shard,
          .prepare_image = state_->in_cuda ? internal::cuda_image_preparation() : PrepareImage()};
}

void TrainState::bring_together() {
  for (const State::Part& part : state_->components) part.component->bring_together();
  state_->brought_together = true;
}

Attributes TrainState::attributes() {
  const auto list = state_->list_tensors();
  State::Look look = state_->look_at_attributes(*list);
  if (const auto form = state_->form.lock()) state_->check_form(*form, *list, look);
  return std::move(look.attributes);
}

Position TrainState::advance(const StepReport& report) {
  std::optional<Cursor> cursor = report.applied;
  DataEnd end = DataEnd::none;
  for (Component* source : state_->data_sources) {
    if (report.applied) {
      // A loader's position moves only with applied samples; what it delivered may still be on its way.
      source->applied(*report.applied);
    } else {
      source->applied_all_delivered();
      if (!cursor) cursor = source->cursor();
    }
    end = std::max(end, source->data_end());
  }
  if (cursor) state_->cursor = *cursor;
  state_->position_told = state_->position_told || report.applied.has_value();
  if (state_->drawn) [[unlikely]] {
    state_->forget_drawn();
  }
  for (std::size_t i = 0; i < state_->modes.size(); ++i) {
    State::Modes& modes = state_->modes[i];
    const bool training = state_->modules[i].module->is_training();
    if (modes.training && *modes.training != training) [[unlikely]] {
      modes.evaluating = training ? std::vector<std::string>() : evaluating_in(*state_->modules[i].module);
    }
    modes.training = training;
  }
  state_->held.reset();
  state_->updated = true;
  state_->brought_together = false;
  state_->data_end = end;
  ++state_->step;
  if (state_->gradients.watching()) [[unlikely]]
    state_->look_at_gradients();
  if (report.skipped) ++state_->skipped;
  return position();
}

}}  // namespace holdfast::v0_2
