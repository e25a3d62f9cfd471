// Everything that decides the next step, by name. Add each part once, a model before its optimizer, then give
// the state to a Checkpointer. CPU and CUDA generators are always included.
//   TrainState state;
//   state.add("model", *net);            // parameters, buffers, train/eval, requires_grad, strides
//   state.add("optimizer", optimizer);   // before a schedule changes its learning rates
//   state.add("data", loader);           // anything Stateful
//   state.value("hidden", hidden);       // a variable of the program (value.h)
//
// Requires: added objects outlive the state and are not replaced. Checkpointer::resume() fixes the form of
// the state: parts, tensors, groups, options. docs/training_state.md has it, and all names.
// Errors: add() throws UsageError; check() and load() throw RefusedError, which names every difference.
// Threads: the training thread only. CUDA: its current streams are the streams that train.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/snapshot/snapshot_source.h"
#include "holdfast/state/module_options.h"
#include "holdfast/state/stateful.h"
#include "holdfast/state/value.h"

namespace at {
struct Generator;
}  // namespace at
namespace torch::data::samplers {
template <typename BatchRequest>
class Sampler;
}
namespace torch::nn {
class Module;
}
namespace torch::optim {
class LRScheduler;
class Optimizer;
class ReduceLROnPlateauScheduler;
}  // namespace torch::optim

namespace holdfast { inline namespace v0_2 {

template <class T, class... Bases>
concept PointsToOneOf = (std::is_convertible_v<T*, Bases*> || ...);
// No add() is for it: neither a class of LibTorch that add() knows, nor a class with save() and load().
template <class T>
concept NoPart =
    !Stateful<T> && !PointsToOneOf<T, torch::nn::Module, torch::optim::Optimizer, torch::optim::LRScheduler,
                                   torch::optim::ReduceLROnPlateauScheduler,
                                   torch::data::samplers::Sampler<std::vector<std::size_t>>>;

// Errors in detail:
// - add(): UsageError for a name that is taken or cannot be stored, an optimizer with parameters of no added
//   module, an unknown optimizer, or tensors that share memory.
//   After Checkpointer::resume(): UsageError for every part and option.
// - A save and state_digest(): UnsavableError (64), which names what differs from the form at resume(). No
//   start of this program could resume from such a checkpoint. Components may write other tensors each time.
// - load() is all or nothing: if a component's load() throws, components loaded before it get back their
//   state.
class HOLDFAST_EXPORT TrainState final : public SnapshotSource {
 public:
  TrainState();
  ~TrainState() override;
  TrainState(const TrainState&) = delete;
  TrainState& operator=(const TrainState&) = delete;

  void add(const std::string& name, torch::nn::Module& module);
  // UsageError also for options that contradict each other.
  void add(const std::string& name, torch::nn::Module& module, const ModuleOptions& options);
  void add(const std::string& name, torch::optim::Optimizer& optimizer);
  void add(const std::string& name, torch::optim::Optimizer& optimizer, const OptimizerOptions& options);
  // LibTorch's StepLR, or a class of your own derived from its LRScheduler that has no other state: the count
  // of its steps. The optimizer's part has the rates. A resume compares the class, and none of its numbers:
  // LibTorch hides them. (Schedule in optim/schedule.h compares them.)
  void add(const std::string& name, torch::optim::LRScheduler& schedule);
  // These do not compile, and the compiler says in one line what to write. (Of a function that is `= delete`
  // it says only that it is deleted.)
  __attribute__((
      unavailable("LibTorch hides what a ReduceLROnPlateauScheduler has counted: use holdfast::Schedule "
                  "schedule(optimizer, holdfast::RatePlan::plateau()), schedule.observe(metric) instead of "
                  "step(metric), and state.add(name, schedule)"))) void
  add(const std::string&, torch::optim::ReduceLROnPlateauScheduler&);
  __attribute__((unavailable(
      "a sampler knows what was drawn, ahead of the training: use holdfast::EpochOrder order(size, "
      "seed), holdfast::TorchSampler(order) in make_data_loader, and state.add(name, order)"))) void
  add(const std::string&, torch::data::samplers::Sampler<std::vector<std::size_t>>&);
  template <class T>
  requires NoPart<std::remove_cvref_t<T>>
  __attribute__((unavailable(
      "this is no part of a state: use *net for a module's holder, state.value(name, variable) for a "
      "variable, state.add_generator(name, generator) for a generator, or give the class save() and load() "
      "(holdfast/state/stateful.h)"))) void
  add(const std::string&, T&&);
  void add_generator(const std::string& name, at::Generator& generator);
  template <Stateful T>
  void add(const std::string& name, T& component);
  // A variable that decides the next step, several by std::tie(), or members of an object (value.h).
  template <class T>
  void value(const std::string& name, T& variable) {
    add_value(name, access_to(variable));
  }
  template <class... T>
  void value(const std::string& name, std::tuple<T&...>&& variables) {
    add_value(name, access_to(variables));
  }
  template <class T, class... Member>
  requires(sizeof...(Member) > 0) void value(const std::string& name, T& object, Member T::*... members) {
    add_value(name, access_to(std::tie(object.*members...)));
  }
  // The gradients of that optimizer's parameters outlive after_step(): it updates them with the sum of
  // several steps. From now on checkpoints hold them, with as many bytes as the parameters. Only needed where
  // TrainState cannot see it (docs/training_state.md#gradients). UsageError: no such part trains parameters.
  void keep_gradients(const std::string& optimizer);
  // An option of the run that belongs to no component ("precision", "seed"). Resume compares it.
  void option(const std::string& name, AttributeValue value);
  // The loop sets the learning rates from the step, the epoch and the present rates alone, so that no part of
  // the state tells them. Otherwise a save warns once a rate has changed.
  void rates_follow_position();
  // An option that chooses how tensors lie in memory ("channels_last"). Load restores the recorded strides.
  // If such an option is overridden, parameters keep this program's strides and slots get the same ones.
  void layout_option(const std::string& name, AttributeValue value);

  // Number of optimizer updates since the start of the run, including skipped ones.
  std::int64_t step() const { return position().step; }
  // Number of skipped updates (StepReport::skipped). Schedules count step() - skipped().
  std::int64_t skipped() const;
  // The samples that the updates have applied. {0, 0} without a data component and without reports.
  Cursor cursor() const;

  std::vector<TensorSpec> describe() override;
  // Each rank's own are random number streams and carried gradients. The same on all ranks are parameters
  // that an optimizer of this state trains, optimizer slots, and tensors of components that say `bool
  // replicated() const`. Buffers and untrained parameters may differ between ranks, such as averages that
  // only rank 0 keeps. Trained are the parameters and slots above, also of a component that trains (concept
  // Trains).
  TensorRole role(const TensorSpec& tensor) const override;
  Attributes attributes() override;
  // Of state.value(): tensors in host memory, to 1 MiB.
  std::map<std::string, std::string> value_digests() override;
  SourceTraits traits() const override;
  std::shared_ptr<const void> hold(Hold what) override;
  std::unique_ptr<LateCopy> copy(const ImageLayout& layout, std::span<std::byte> image, Part part) override;
  Position advance(const StepReport& report) override;
  Position position() const override;
  void learn(const StepNews& news) override;
  std::vector<std::string> changed(const Snapshot* image) override;
  // What was probably forgotten, found at the first save: docs/porting.md.
  std::vector<std::string> doubts() override;
  void check(std::span<const TensorSpec> tensors, const Attributes& attributes,
             const Overrides& overrides) override;
  void load(const Snapshot& snapshot, const LoadOptions& options) override;
  // Calls bring_together() of every component that has it. Collective.
  void bring_together() override;

  // Type-erased component.
  class Component {
   public:
    virtual ~Component() = default;
    virtual void save(StateWriter& out) const = 0;
    virtual void load(const StateReader& in) = 0;
    virtual void bring_together() {}
    virtual bool spread() const { return false; }
    virtual bool replicated() const { return false; }
    virtual std::vector<at::Tensor> trained() const { return {}; }
    virtual bool delivers_data() const { return false; }  // a DataSource; else the next four are not asked
    virtual void applied(const Cursor&) {}
    virtual void applied_all_delivered() {}
    virtual std::optional<Cursor> cursor() const { return std::nullopt; }
    virtual DataEnd data_end() const { return DataEnd::none; }
    virtual std::optional<Shard> shard() const { return std::nullopt; }
    virtual bool may_be_new() const { return false; }
    virtual bool may_know_position() const { return false; }
    virtual bool may_know_rates() const { return true; }
    virtual void told_to_stop() {}
  };

 private:
  void add_component(const std::string& name, std::unique_ptr<Component> component);
  void add_value(const std::string& name, ValueAccess access);
  void load_weights(const Snapshot& snapshot);

  struct State;
  std::unique_ptr<State> state_;
};

// A component that delivers data and keeps the cursor (data/loader.h, or a user's own).
template <class T>
concept DataSource = Stateful<T> && requires(T& source, const Cursor& cursor) {
  source.applied(cursor);
  source.applied_all_delivered();
};
// A DataSource that knows its cursor even if an update does not report one.
template <class T>
concept KnowsCursor = DataSource<T> && requires(const T& source) {
  { source.cursor() } -> std::convertible_to<Cursor>;
};

// A DataSource that knows where its epochs end.
template <class T>
concept KnowsDataEnd = DataSource<T> && requires(const T& source) {
  { source.data_end() } -> std::same_as<DataEnd>;
};

// A DataSource that knows which part of each batch this rank takes. Two ranks with the same part get a
// warning.
template <class T>
concept KnowsShard = DataSource<T> && requires(const T& source) {
  { source.shard() } -> std::convertible_to<Shard>;
};

// A component whose save() needs data of other ranks (distributed/sharded_optimizer.h).
template <class T>
concept SpreadOverRanks = Stateful<T> && requires(T& component) {
  component.bring_together();
};

// A component that may be missing in a checkpoint: then it starts fresh. Its class has `static constexpr bool
// kMayBeNew = true;`. Used when a run of one rank continues with several (data_parallel.h).
template <class T>
concept MayBeNew = Stateful<T> && T::kMayBeNew;

// A component that wants to know that after_step() said stop, such as an order that then begins no new pass.
template <class T>
concept HearsStop = Stateful<T> && requires(T& component) {
  component.told_to_stop();
};

// A component that surely does not hold the position in the data. Its class has `static constexpr bool
// kKnowsNoPosition = true;`.
template <class T>
concept KnowsNoPosition = Stateful<T> && T::kKnowsNoPosition;

// A component that surely does not hold what a schedule of learning rates needs. Its class has `static
// constexpr bool kKnowsNoRates = true;`. A DataSource needs no such line.
template <class T>
concept KnowsNoRates = DataSource<T> ||(Stateful<T>&& T::kKnowsNoRates);

// A component whose tensors have the same bits on all ranks.
template <class T>
concept SaysReplicated = Stateful<T> && requires(const T& component) {
  { component.replicated() } -> std::same_as<bool>;
};

// A component that acts as an optimizer: only it changes these parameters of added modules, and it changes
// them in the same way on all ranks.
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
    bool spread() const override { return SpreadOverRanks<T>; }
    bool replicated() const override {
      if constexpr (SaysReplicated<T>) return target_.replicated();
      return false;
    }
    std::vector<at::Tensor> trained() const override {
      if constexpr (Trains<T>) return target_.trained();
      return {};
    }
    bool delivers_data() const override { return DataSource<T>; }
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
    DataEnd data_end() const override {
      if constexpr (KnowsDataEnd<T>) return target_.data_end();
      return DataEnd::none;
    }
    std::optional<Shard> shard() const override {
      if constexpr (KnowsShard<T>) return target_.shard();
      return std::nullopt;
    }
    bool may_be_new() const override { return MayBeNew<T>; }
    bool may_know_position() const override { return !KnowsNoPosition<T>; }
    bool may_know_rates() const override { return !KnowsNoRates<T>; }
    void told_to_stop() override {
      if constexpr (HearsStop<T>) target_.told_to_stop();
    }
    T& target_;
  };
  add_component(name, std::make_unique<Adapter>(component));
}

}}  // namespace holdfast::v0_2
