// TrainState: everything that decides the next step, gathered by name. Add the parts once, in any order of
// dependence (a model before the optimizer that trains it), then hand it to a Checkpointer:
//
//   TrainState state;
//   state.add("model", *net);            // parameters, buffers, train/eval and requires_grad flags, strides
//   state.add("optimizer", optimizer);   // torch::optim SGD, Adam, AdamW, RMSprop, Adagrad, LBFGS
//   state.add("schedule", schedule);     // anything Stateful
//   state.add("data", loader);
//
// The default CPU generator and every CUDA generator are always part of it; private generators are added with
// add_generator. Tensors are stored as "<name>/<dotted name>", slots as "<name>/<slot>/<parameter name>",
// streams as "rng/<name>"; attributes as "<name>.…" (module_state.h, optimizer_state.h), and
//
//   step, cursor.epoch, cursor.samples   the counters; skipped where updates were left out
//   <option>                             run options, named as given
//   state.parts, state.options           records: what was added, which attributes were options
//   environment.…                        records: what else the bits depend on
//
// Options are compared, never restored: an option that this program declares must be in the checkpoint with
// the same bits (declared there or merely put), and one that the checkpoint declares must still be put here.
// An override accepts the difference; then this program's value stands. A learning rate is an option of its
// optimizer as it stood when the optimizer was added (optimizer_state.h): add the optimizer before a schedule
// changes its rates.
//
// Requires: the added objects outlive the state, and are not replaced (module.to() is fine).
// Errors: add() throws UsageError (a name that is taken or cannot be stored, an optimizer whose parameters
// belong to no added module, an unknown optimizer, tensors that share memory); check() and load() throw
// RefusedError naming every difference. load() is all or nothing: when a component's own load() throws, those
// loaded before it get their earlier state back.
// Threads: the training thread only. With CUDA, the current streams are taken to be those that train.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/snapshot/snapshot_source.h"
#include "holdfast/state/stateful.h"

namespace at {
struct Generator;
}  // namespace at
namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace holdfast::inline v1 {

class TrainState final : public SnapshotSource {
 public:
  TrainState();
  ~TrainState() override;
  TrainState(const TrainState&) = delete;
  TrainState& operator=(const TrainState&) = delete;

  void add(const std::string& name, torch::nn::Module& module);
  void add(const std::string& name, torch::optim::Optimizer& optimizer);
  void add_generator(const std::string& name, at::Generator& generator);
  template <Stateful T>
  void add(const std::string& name, T& component);
  // An option of the run that belongs to no component ("precision", "seed"): compared on resume.
  void option(const std::string& name, AttributeValue value);
  // One that chooses how tensors lie in memory ("channels_last"). Strides are restored as recorded, except
  // under an override of such an option: then parameters keep the strides that this program gave them, and
  // slots get those.
  void layout_option(const std::string& name, AttributeValue value);

  // The training loop's clock: optimizer updates since the start of the run, those left out included.
  std::int64_t step() const override;
  // Updates left out so far (StepReport::skipped). Schedules count step() - skipped().
  std::int64_t skipped() const;
  // What the updates so far have applied; {0, 0} without a data component or a report of it.
  Cursor cursor() const;

  std::vector<TensorSpec> describe() override;
  void copy_tensors(const ImageLayout& layout, std::span<std::byte> image, Part part) override;
  std::unique_ptr<LateCopy> prepare_late(const ImageLayout& layout, std::span<std::byte> image) override;
  bool on_device() const override;
  std::unique_ptr<LateCopy> prepare_independent(const ImageLayout& layout,
                                                std::span<std::byte> image) override;
  PrepareImage image_preparation() const override;
  void copy_early(std::span<const std::string> names) override;
  Attributes attributes() override;
  void advance(const StepReport& report) override;
  void check(std::span<const TensorSpec> tensors, const Attributes& attributes,
             const Overrides& overrides) override;
  void load(const Snapshot& snapshot, const Overrides& overrides) override;
  void load_weights(const Snapshot& snapshot) override;
  bool takes_weight(const TensorSpec& tensor) const override;
  // Of the components that have one.
  void bring_together() override;
  // Random number streams are a rank's own; everything else is the same on all ranks that train together.
  bool own_of_rank(const TensorSpec& tensor) const override;
  // Parameters that an optimizer of this state trains, optimizer slots, and the tensors of components that
  // say so (`bool replicated() const`). Not buffers, nor parameters that nothing here trains: ranks may hold
  // different ones, such as averages that rank 0 alone keeps.
  bool replicated(const TensorSpec& tensor) const override;
  void copy_own(const ImageLayout& layout, std::span<std::byte> image) override;
  void derive_own(int rank) override;

  // A component seen through type erasure. `applied` and `applied_all` are no-ops for parts that are not
  // data.
  class Component {
   public:
    virtual ~Component() = default;
    virtual void save(StateWriter& out) const = 0;
    virtual void load(const StateReader& in) = 0;
    virtual void bring_together() = 0;
    virtual bool replicated() const = 0;
    virtual std::vector<at::Tensor> trained() const = 0;
    virtual void applied(const Cursor& cursor) = 0;
    virtual void applied_all_delivered() = 0;
    virtual std::optional<Cursor> cursor() const = 0;
    virtual bool may_be_new() const = 0;
  };

 private:
  void add_component(const std::string& name, std::unique_ptr<Component> component);
  void load_components(const Snapshot& snapshot);

  struct State;
  std::unique_ptr<State> state_;
};

// A component that delivers data and keeps the cursor (data/loader.h, or a user's own).
template <class T>
concept DataSource = Stateful<T> && requires(T& source, const Cursor& cursor) {
  source.applied(cursor);
  source.applied_all_delivered();
};
// One that can say where it stands also when an update reports no cursor.
template <class T>
concept KnowsCursor = DataSource<T> && requires(const T& source) {
  { source.cursor() } -> std::convertible_to<Cursor>;
};

// A component whose save() needs what other ranks have (distributed/sharded_optimizer.h).
template <class T>
concept SpreadOverRanks = Stateful<T> && requires(T& component) {
  component.bring_together();
};

// A component that a program may have and the checkpoint's had not: it begins fresh then. Its class says
// `static constexpr bool kMayBeNew = true;` (distributed/data_parallel.h: the run had one rank so far).
template <class T>
concept MayBeNew = Stateful<T> && T::kMayBeNew;

// One whose tensors are the same, to the bit, on all ranks that train together.
template <class T>
concept SaysReplicated = Stateful<T> && requires(const T& component) {
  { component.replicated() } -> std::same_as<bool>;
};

// An optimizer of its own kind: parameters of added modules that nobody but it changes, and on all ranks
// alike.
template <class T>
concept Trains = Stateful<T> && requires(const T& component) {
  { component.trained() } -> std::same_as<std::vector<at::Tensor>>;
};

template <Stateful T>
void TrainState::add(const std::string& name, T& component) {
  struct Adapter final : Component {
    explicit Adapter(T& target) : target_(target) {}
    void save(StateWriter& out) const override { target_.save(out); }
    void load(const StateReader& in) override { target_.load(in); }
    void bring_together() override {
      if constexpr (SpreadOverRanks<T>) target_.bring_together();
    }
    bool replicated() const override {
      if constexpr (SaysReplicated<T>) return target_.replicated();
      return false;
    }
    std::vector<at::Tensor> trained() const override {
      if constexpr (Trains<T>) return target_.trained();
      return {};
    }
    void applied([[maybe_unused]] const Cursor& cursor) override {
      if constexpr (DataSource<T>) target_.applied(cursor);
    }
    void applied_all_delivered() override {
      if constexpr (DataSource<T>) target_.applied_all_delivered();
    }
    std::optional<Cursor> cursor() const override {
      if constexpr (KnowsCursor<T>) return target_.cursor();
      return std::nullopt;
    }
    bool may_be_new() const override { return MayBeNew<T>; }
    T& target_;
  };
  add_component(name, std::make_unique<Adapter>(component));
}

}  // namespace holdfast::inline v1
