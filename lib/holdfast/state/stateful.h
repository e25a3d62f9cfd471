// How a component joins the training state. Anything whose value decides the next step (a schedule, a
// loader, a user's own replay buffer) provides two members and is added by name to a TrainState:
//
//   void save(StateWriter& out) const;    // write everything the next step depends on
//   void load(const StateReader& in);     // become exactly what save() saw
//
// Names are local to the component; TrainState prefixes them ("schedule.position", tensor "ema/fc.weight").
// save() runs on the training thread inside after_step and must not change anything. load() runs once, after
// every check of the whole checkpoint has passed.
//
// One whose save() needs what other ranks of the run have (distributed/sharded_optimizer.h) provides
// bring_together() as well: collective, called by all ranks at a step boundary before any save(), which then
// waits for nobody until the next update. One whose tensors are the same to the bit on all ranks then may say
// so with `bool replicated() const`: ranks that write one checkpoint together share them out. Of all others
// rank 0's are saved.
//
// Errors: a missing or mistyped entry throws RefusedError naming it, so load() needs no checks of its own.
// Threads: none; writer and reader belong to the call.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/snapshot/attributes.h"

namespace at {
class Tensor;
}

namespace holdfast::inline v1 {

class StateWriter {
 public:
  virtual ~StateWriter() = default;

  // Decides the next step: compared bit for bit, digested into `state=`.
  void put(std::string_view name, AttributeValue value) { attribute(name, std::move(value), Role::decides); }
  // An option the user chose (learning rate, batch size, augmentation on/off): decides the next step, and on
  // resume it must equal the recorded value unless the user overrides it by this full name. load() is still
  // called; an option is checked, not restored.
  void option(std::string_view name, AttributeValue value);
  // For people only.
  void note(std::string_view name, AttributeValue value) { attribute(name, std::move(value), Role::record); }
  // What the bits depend on although the training is the same one (in how many passes a batch is computed):
  // a difference on resume is no refusal, it withdraws the bit-exact promise, aloud.
  virtual void environment(std::string_view name, AttributeValue value) { note(name, std::move(value)); }
  // A tensor of any device and layout. The bytes are copied before save() returns.
  virtual void put_tensor(std::string_view name, const at::Tensor& tensor) = 0;

 protected:
  virtual void attribute(std::string_view name, AttributeValue value, Role role) = 0;
  virtual void declare_option(std::string_view name) = 0;
};

class StateReader {
 public:
  virtual ~StateReader() = default;

  virtual bool has(std::string_view name) const = 0;
  virtual bool has_tensor(std::string_view name) const = 0;
  virtual bool get_bool(std::string_view name) const = 0;
  virtual std::int64_t get_int(std::string_view name) const = 0;
  virtual double get_double(std::string_view name) const = 0;
  virtual std::string get_string(std::string_view name) const = 0;
  virtual std::vector<std::int64_t> get_ints(std::string_view name) const = 0;
  virtual std::vector<double> get_doubles(std::string_view name) const = 0;
  virtual std::vector<std::string> get_strings(std::string_view name) const = 0;
  // A new CPU tensor with the recorded type and shape.
  virtual at::Tensor get_tensor(std::string_view name) const = 0;
};

inline void StateWriter::option(std::string_view name, AttributeValue value) {
  declare_option(name);
  attribute(name, std::move(value), Role::decides);
}

template <class T>
concept Stateful = requires(T& component, const T& constant, StateWriter& out, const StateReader& in) {
  { constant.save(out) } -> std::same_as<void>;
  { component.load(in) } -> std::same_as<void>;
};

}  // namespace holdfast::inline v1
