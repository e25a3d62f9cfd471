// The inside of a TrainState: its parts, and one list of their tensors. The sources train_state*.cc use it,
// each with one purpose: composition and staging, the list, does a checkpoint fit, load, doubts.
//
// Threads: the training thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/state/internal/cuda_tensors.h"
#include "holdfast/state/internal/drawn_generators.h"
#include "holdfast/state/internal/first_look.h"
#include "holdfast/state/internal/frozen_tensors.h"
#include "holdfast/state/internal/gradient_watch.h"
#include "holdfast/state/internal/state_form.h"
#include "holdfast/state/module_state.h"
#include "holdfast/state/optimizer_state.h"
#include "holdfast/state/rng_state.h"
#include "holdfast/state/train_state.h"

namespace holdfast { inline namespace v0_2 {

struct TrainState::State {
  struct Part {
    std::string name;
    std::unique_ptr<Component> component;
  };
  // All tensors of modules and optimizers at this moment.
  struct List {
    ModuleInventory modules;
    std::vector<OptimizerInventory> optimizers;
  };
  // All attributes at this moment, and the names of those that are options.
  struct Look {
    Attributes attributes;
    std::vector<std::string> options;
  };

  // Of one module: the train/eval flags that a save records. After each update the module's own one is noted;
  // to walk all of its submodules then would cost each step.
  struct Modes {
    std::optional<bool> training;         // at the last boundary; nullopt: none since the start or a load
    std::vector<std::string> evaluating;  // at the last save with the module's own flag so
  };

  void check_new_name(const std::string& name) const;
  bool has_module(std::string_view name) const;
  bool may_be_new(std::string_view part) const;  // "component parallel"
  // A new list, or the one that is held (Hold::list).
  std::shared_ptr<const List> list_tensors();
  const std::vector<std::string>& modes_of(std::size_t module);
  Look look_at_attributes(const List& list);
  // Visits parameters, buffers and slots, each with the part of the save that copies it.
  void visit_tensors(
      const std::function<void(const std::string& name, const at::Tensor&, holdfast::Part)>& visit);
  // The parameters that each optimizer, or other component that trains, has.
  internal::GradientWatch::Owners owners() const;
  // The gradients that a save records (train_state_gradients.cc): their parameters' names, and the tensors of
  // those that are carried from step to step.
  std::vector<std::string> gradients_present(const List& list) const;
  void look_at_gradients();
  std::vector<SlotTensor> carried_gradients(const List& list) const;
  // What the checkpoint has: for each parameter its new gradient. Also notes which owners carry them.
  // `slots`: of each optimizer.
  std::vector<std::pair<at::Tensor, at::Tensor>> recorded_gradients(
      const List& list, const Snapshot& snapshot, const std::vector<OptimizerState::Loaded>& slots);
  bool may_change_form() const;
  std::shared_ptr<const void> fix_form();
  // The parts of a copy (TrainState::copy).
  void copy_now(const ImageLayout& layout, std::span<std::byte> image, holdfast::Part part);
  void copy_own(const ImageLayout& layout, std::span<std::byte> image);
  std::unique_ptr<LateCopy> prepare(const ImageLayout& layout, std::span<std::byte> image, NextUpdate update);
  // Throws UsageError once the form is fixed: `what` comes too late.
  void check_form_is_open(const std::string& what) const;
  internal::StateForm form_of(const List& list, const Look& look) const;
  // Throws UnsavableError, which names what differs from `start`.
  void check_form(const internal::StateForm& start, const List& list, const Look& look) const;
  // Returns true if tensors keep this program's strides.
  bool own_layout(const Overrides& overrides) const;
  void derive_own(int rank);
  std::vector<std::string> changed_unseen();
  void find_gpus(const ModuleInventory& inventory);
  std::vector<NamedGenerator> streams() const;  // of the GPUs that find_gpus() has found
  std::vector<std::string> parts() const;       // "module model"
  // Names optimizers whose rates have changed, if nothing may know who changes them; empty: none.
  std::string rates_of_nobody();
  // What drawn has heard and streams() lacks; empty: nothing. forget_drawn() is one update's call.
  std::string drawn_elsewhere() const;
  void forget_drawn();

  std::weak_ptr<const List> held;
  std::vector<NamedModule> modules;
  std::vector<Modes> modes;  // of each
  std::vector<OptimizerState> optimizers;
  std::vector<Part> components;
  std::vector<Component*> data_sources;    // those of the components that deliver data
  std::vector<NamedGenerator> generators;  // private ones
  std::vector<std::pair<std::string, AttributeValue>> options;
  std::vector<std::string> layout_options;      // of these
  std::set<std::string> early;                  // tensors that changed between after_step and before_update
  std::unordered_set<std::string> trained;      // parameters and slots, as of the last describe()
  std::unordered_set<std::string> replicated;   // tensors of replicated components, as of the last describe()
  bool updated = false;                         // in this process
  bool brought_together = false;                // bring_together() was called at this step boundary
  bool in_cuda = false;                         // a module's tensor was in CUDA memory at the last
                                                // describe()
  std::vector<c10::DeviceIndex> gpus;           // that hold tensors of modules, in their order, as of
                                                // the last find_gpus()
  bool components_in_cuda = false;              // a component's tensor was in CUDA memory at the last copy
  std::shared_ptr<internal::CudaStaging> cuda;  // made by the first save from a device
  static constexpr int kUpdatesHeard = 2;
  std::unique_ptr<internal::DrawnGenerators> drawn;  // from the start to the second update of this process
  int updates_heard = 0;
  std::string drawn_text;         // of drawn_elsewhere(), then
  internal::HeldBuffers buffers;  // as of add()
  internal::GradientWatch gradients;
  internal::FrozenTensors frozen;
  DataEnd data_end = DataEnd::none;  // of the last update
  bool position_told = false;        // an update reported `.applied`
  bool doubted = false;              // doubts() has looked
  bool modes_told = false;           // the log says that a save fell into an evaluation
  bool rates_told = false;           // something may know who changes the rates, or doubts() has asked
  std::int64_t step = 0;
  std::int64_t skipped = 0;  // skipped updates among `step`
  Cursor cursor;
  // Lives while the form is fixed.
  std::weak_ptr<const internal::StateForm> form;
};

// TensorImpls of the parameters that only an optimizer changes. They keep their values until its next step,
// so a save may copy them late.
std::set<const void*> trained_by(const std::vector<OptimizerState>& optimizers);

namespace internal {

// Describes which recorded model tensors do not fit, one text each. `strides`: also compares strides that
// load() could not restore.
std::vector<std::string> module_differences(std::span<const NamedModule> modules,
                                            const ModuleInventory& inventory,
                                            std::span<const TensorSpec> tensors, const Attributes& recorded,
                                            bool strides);
// The recorded strides, or those of a contiguous tensor if none are recorded.
std::vector<std::int64_t> recorded_strides(const std::string& tensor, at::IntArrayRef shape,
                                           const Attributes& recorded);

// Tensors that a checkpoint has by digest alone, and that differ here; the remedy.
std::string other_weights(const std::vector<std::string>& names);
inline constexpr char kLoadSameWeights[] = ". Load the same frozen weights before resume()";

// "rng/gpu.0", or its older name if the file has only that.
std::string recorded_name(const NamedGenerator& stream, std::span<const TensorSpec> recorded);

// Runs `work`. What modules and optimizers refuse does not pass by itself; a component's save() may have
// reasons that do.
template <class Work>
void or_unsavable(const Work& work) {
  try {
    work();
  } catch (const UsageError& error) {
    throw UnsavableError(error.what());
  }
}

// "float32 [64, 3]"
std::string type_and_shape(const TensorSpec& spec);
// "a; b; c and 12 more"
std::string joined(const std::vector<std::string>& texts, std::size_t most);

}  // namespace internal
}}  // namespace holdfast::v0_2
