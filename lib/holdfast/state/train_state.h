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
// add_generator. Tensors are stored under "<name>/<dotted name>", slots under "<name>/<slot>/<parameter name>".
//
// Requires: the added objects outlive the state, and are not replaced (module.to() is fine).
// Errors: add() throws UsageError (name taken, an optimizer whose parameters belong to no added module);
// check() and load() throw RefusedError naming every difference. load() is all or nothing.
// Threads: the training thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "holdfast/snapshot/snapshot_source.h"
#include "holdfast/state/stateful.h"

namespace at {
struct Generator;
}
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

  // The training loop's clock: optimizer updates applied since the start of the run.
  std::int64_t step() const override;
  Cursor cursor() const;

  std::vector<TensorSpec> describe() override;
  void copy_tensors(const ImageLayout& layout, std::span<std::byte> image, Part part) override;
  Attributes attributes() override;
  void advance(const StepReport& report) override;
  void check(std::span<const TensorSpec> tensors, const Attributes& attributes,
             const Overrides& overrides) override;
  void load(const Snapshot& snapshot, const Overrides& overrides) override;
  void load_weights(const Snapshot& snapshot) override;

  // A component seen through type erasure. `applied` and `applied_all` are no-ops for parts that are not data.
  class Component {
   public:
    virtual ~Component() = default;
    virtual void save(StateWriter& out) const = 0;
    virtual void load(const StateReader& in) = 0;
    virtual void applied(const Cursor& cursor) = 0;
    virtual void applied_all_delivered() = 0;
  };

 private:
  void add_component(const std::string& name, std::unique_ptr<Component> component);

  struct State;
  std::unique_ptr<State> state_;
};

// A component that delivers data and keeps the cursor (data/loader.h, or a user's own).
template <class T>
concept DataSource = Stateful<T> && requires(T& source, const Cursor& cursor) {
  source.applied(cursor);
  source.applied_all_delivered();
};

template <Stateful T>
void TrainState::add(const std::string& name, T& component) {
  struct Adapter final : Component {
    explicit Adapter(T& target) : target_(target) {}
    void save(StateWriter& out) const override { target_.save(out); }
    void load(const StateReader& in) override { target_.load(in); }
    void applied([[maybe_unused]] const Cursor& cursor) override {
      if constexpr (DataSource<T>) target_.applied(cursor);
    }
    void applied_all_delivered() override {
      if constexpr (DataSource<T>) target_.applied_all_delivered();
    }
    T& target_;
  };
  add_component(name, std::make_unique<Adapter>(component));
}

}  // namespace holdfast::inline v1
