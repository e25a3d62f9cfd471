// The order makes load() all or nothing. First everything that can fail without a change: the comparison and
// all allocations. Then new memory and the components' own load(), whose effects can be undone. After that
// there are only copies.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <exception>
#include <map>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/state/internal/component_io.h"
#include "holdfast/state/internal/cuda_tensors.h"
#include "holdfast/state/internal/train_state_parts.h"
#include "holdfast/state/stager.h"
#include "holdfast/state/tensor_bytes.h"

namespace holdfast { inline namespace v0_2 {
namespace {

at::Tensor stream_state(const Snapshot& snapshot, const std::string& name) {
  const auto bytes = snapshot.find(name);
  if (!bytes) return {};
  at::Tensor state = empty_like_spec({name, DType::uint8, {static_cast<std::int64_t>(bytes->size())}},
                                     std::nullopt, at::kCPU);
  Stager copy;
  copy.add(*bytes, state);
  copy.run();
  return state;
}

// A tensor that the checkpoint has by digest alone keeps its bytes, which check() has compared.
void copy_module_tensors(const ModuleInventory& inventory, const Snapshot& snapshot,
                         internal::FrozenTensors& frozen) {
  Stager stager;
  for (const ModuleTensor& item : inventory.tensors) {
    const auto bytes = snapshot.find(item.name);
    if (!bytes) continue;
    stager.add(*bytes, item.tensor);
    frozen.written(item.name);
  }
  stager.run();
}

// Tensors that need other memory to become what is recorded, each with that memory. `own_layout`: this run
// has chosen its own memory format, so recorded strides count only with another shape.
using NewMemory = std::vector<std::pair<at::Tensor, at::Tensor>>;
NewMemory new_memory(const ModuleInventory& inventory, const Snapshot& snapshot, bool own_layout) {
  NewMemory memory;
  const NewShapes reshaped = new_shapes(inventory, snapshot.layout->tensors());
  for (const ModuleTensor& item : inventory.tensors) {
    const auto other = reshaped.find(item.tensor.unsafeGetTensorImpl());
    if (other == reshaped.end() && own_layout) continue;
    const at::IntArrayRef shape =
        other == reshaped.end() ? item.tensor.sizes() : at::IntArrayRef(other->second);
    const auto strides = internal::recorded_strides(item.name, shape, snapshot.attributes);
    if (!dense_strides(shape, strides)) {
      if (other != reshaped.end()) memory.emplace_back(item.tensor, at::empty(shape, item.tensor.options()));
    } else if (other != reshaped.end() || item.tensor.strides() != at::IntArrayRef(strides)) {
      memory.emplace_back(item.tensor, at::empty_strided(shape, strides, item.tensor.options()));
      // Recorded by digest alone, or read by a component that loads.
      if (other == reshaped.end()) memory.back().second.copy_(item.tensor);
    }
  }
  return memory;
}

// The tensors stay the same objects, so that modules and optimizers keep them. Without keep() they get their
// own memory back.
class GivenMemory {
 public:
  explicit GivenMemory(const NewMemory& memory) {
    before_.reserve(memory.size());
    for (const auto& [tensor, fresh] : memory) {
      before_.push_back({tensor, tensor.variable_data(), tensor.grad()});
      // A gradient of the old shape would meet the next backward pass.
      if (tensor.sizes() != fresh.sizes()) tensor.mutable_grad() = at::Tensor();
      tensor.set_data(fresh);
    }
  }
  ~GivenMemory() {
    for (const Before& one : before_) {
      one.tensor.set_data(one.memory);
      one.tensor.mutable_grad() = one.gradient;
    }
  }
  GivenMemory(const GivenMemory&) = delete;
  GivenMemory& operator=(const GivenMemory&) = delete;
  void keep() { before_.clear(); }

 private:
  struct Before {
    at::Tensor tensor, memory, gradient;
  };
  std::vector<Before> before_;
};

// Their load() is the program's code and may throw halfway. Without keep() those that loaded, and one that
// threw, get back what they had.
template <class Part>
class LoadedComponents {
 public:
  explicit LoadedComponents(const std::vector<Part>& parts) : parts_(parts), backups_(parts.size()) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      internal::BackupWriter writer(parts[i].name, backups_[i]);
      parts[i].component->save(writer);
    }
  }
  void load(const Snapshot& snapshot) {
    const auto& recorded = snapshot.attributes.get_strings("state.parts");
    for (const Part& part : parts_) {
      ++begun_;
      // A new component starts fresh.
      if (std::find(recorded.begin(), recorded.end(), "component " + part.name) == recorded.end()) continue;
      part.component->load(internal::SnapshotReader(part.name, snapshot));
    }
  }
  void keep() { begun_ = 0; }
  ~LoadedComponents() {
    for (std::size_t i = 0; i < begun_; ++i) {
      try {
        parts_[i].component->load(internal::BackupReader(parts_[i].name, backups_[i]));
      } catch (const std::exception& error) {
        log_error("could not restore the earlier state of '{}': {}", parts_[i].name, error.what());
      }
    }
  }
  LoadedComponents(const LoadedComponents&) = delete;
  LoadedComponents& operator=(const LoadedComponents&) = delete;

 private:
  const std::vector<Part>& parts_;
  std::vector<internal::ComponentBackup> backups_;
  std::size_t begun_ = 0;
};

}  // namespace

void TrainState::load(const Snapshot& snapshot, const LoadOptions& options) {
  if (options.weights_only) return load_weights(snapshot);
  const Overrides& overrides = options.overrides;
  const Attributes& recorded = snapshot.attributes;
  check(snapshot.layout->tensors(), recorded, overrides);

  const auto list = state_->list_tensors();
  const ModuleInventory& inventory = list->modules;
  // Before any change, because it throws for parts that cannot be described.
  const State::Look now = state_->look_at_attributes(*list);
  // Reads every attribute that the second half needs now, so that a missing one throws before anything
  // changes.
  const Cursor cursor{recorded.get_int("cursor.epoch"), recorded.get_int("cursor.samples")};
  const std::int64_t skipped = recorded.has("skipped") ? recorded.get_int("skipped") : 0;
  for (const NamedModule& module : state_->modules) {
    static_cast<void>(recorded.get_strings(module.name + ".frozen"));
    static_cast<void>(recorded.get_strings(module.name + ".evaluating"));
  }
  const at::NoGradGuard no_grad;
  const bool own_layout = state_->own_layout(overrides);
  const NewMemory memory = new_memory(inventory, snapshot, own_layout);
  std::vector<OptimizerState::Loaded> slots;
  for (const OptimizerState& part : state_->optimizers) {
    slots.push_back(part.prepare(inventory, snapshot, own_layout));
  }
  std::vector<std::pair<NamedGenerator, at::Tensor>> streams;
  for (const NamedGenerator& stream : state_->streams()) {
    const at::Tensor state =
        stream_state(snapshot, internal::recorded_name(stream, snapshot.layout->tensors()));
    if (!state.defined()) continue;  // a device that the recorded machine did not have
    // On a copy, so that a wrong state is refused before anything changes.
    check_rng_state(stream, state);
    streams.emplace_back(stream, state);
  }
  LoadedComponents components(state_->components);
  // Before they load: they may cut tensors as the parameters lie in memory.
  GivenMemory given(memory);
  components.load(snapshot);
  // Behind the components, which may hold gradients of their own.
  const auto gradients = state_->recorded_gradients(*list, snapshot, slots);

  const bool in_cuda = std::any_of(inventory.tensors.begin(), inventory.tensors.end(),
                                   [](const ModuleTensor& item) { return internal::in_cuda(item.tensor); });
  // Devices read directly from page-locked memory, and this arena may become the next save's image.
  if (in_cuda && !snapshot.arena->attached()) {
    snapshot.arena->attach(internal::cuda_image_preparation()(snapshot.arena->bytes()));
  }
  // From here on nothing may fail: see the top of this file.
  state_->held.reset();
  given.keep();
  components.keep();
  copy_module_tensors(inventory, snapshot, state_->frozen);
  for (const NamedModule& module : state_->modules) set_module_flags(module, recorded);
  for (State::Modes& modes : state_->modes) modes = {};
  std::vector<std::string> named = now.options;  // plus options that only the recorded run had
  for (const std::string& name : recorded.get_strings(kStateOptions)) named.push_back(name);
  const auto changed = overridden(named, overrides);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    state_->optimizers[i].install(std::move(slots[i]), recorded, changed);
  }
  for (const auto& [parameter, gradient] : gradients) parameter.mutable_grad() = gradient;
  state_->gradients.loaded(state_->owners());
  state_->step = recorded.get_int("step");
  state_->skipped = skipped;
  state_->cursor = cursor;
  // Last: everything above may draw random numbers.
  for (const auto& [stream, state] : streams) set_rng_state(stream, state);
  if (options.new_rank > 0) state_->derive_own(options.new_rank);
}

void TrainState::State::derive_own(int rank) {
  find_gpus(list_tensors()->modules);
  for (const NamedGenerator& stream : streams()) {
    // All ranks start from the streams in one file. Without this they would draw the same numbers, such as
    // equal dropout masks.
    branch_off(stream, static_cast<std::uint64_t>(rank));
  }
}

void TrainState::load_weights(const Snapshot& snapshot) {
  // Without list_tensors(): the optimizers have no part in loading weights.
  ModuleInventory inventory = take_inventory(state_->modules);
  state_->frozen.mark(state_->modules, inventory);  // before the load: what the program has made
  const auto texts = internal::module_differences(state_->modules, inventory, snapshot.layout->tensors(),
                                                  snapshot.attributes, false);
  if (!texts.empty()) {
    throw RefusedError("refused: the weights do not fit this model: " + internal::joined(texts, 24) +
                       ". Use the model that they were trained with");
  }
  const auto other_bytes = state_->frozen.other_bytes(inventory, snapshot.attributes);
  if (!other_bytes.empty()) {
    throw RefusedError("refused: " + internal::other_weights(other_bytes) + internal::kLoadSameWeights);
  }
  const at::NoGradGuard no_grad;
  GivenMemory(new_memory(inventory, snapshot, true)).keep();
  copy_module_tensors(inventory, snapshot, state_->frozen);
}

}}  // namespace holdfast::v0_2
