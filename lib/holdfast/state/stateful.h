// How a component joins the training state. Anything whose value decides the next step (a schedule, a loader,
// a replay buffer) provides two members and is added by name to a TrainState:
//
//   void save(StateWriter& out) const;    // writes everything that the next step depends on
//   void load(const StateReader& in);     // becomes exactly what save() saw
//
// save() runs inside after_step() and changes nothing. add() calls it once, too, to find names that clash: an
// object that is not complete yet must throw there. load() runs once, after all checks have passed. Names are
// local; TrainState puts "schedule." or "ema/" before them. Several ranks: docs/training_state.md.
//
// Errors: RefusedError, which names the missing or mistyped entry; load() needs no checks of its own.
// Threads: the training thread. Writer and reader are valid only during the call.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/snapshot/attributes.h"

namespace at {
class Tensor;
}

namespace holdfast { inline namespace v0_2 {

class HOLDFAST_EXPORT StateWriter {
 public:
  virtual ~StateWriter() = default;

  // A value that decides the next step. It is compared bit for bit and is part of the digest `state=`.
  void put(std::string_view name, AttributeValue value) { attribute(name, std::move(value), Role::decides); }
  // An option that the user chose (learning rate, batch size, augmentation). It decides the next step. Resume
  // refuses a value that differs from the recorded one, unless the user overrides it by this full name. An
  // option is compared, not restored; load() is still called.
  void option(std::string_view name, AttributeValue value);
  // Information for people only.
  void note(std::string_view name, AttributeValue value) { attribute(name, std::move(value), Role::record); }
  // A value that the bits depend on, but not the training itself (the number of passes of one batch). If it
  // differs on resume, the run continues and logs that it withdraws the bit-exact promise.
  virtual void environment(std::string_view name, AttributeValue value) { note(name, std::move(value)); }
  // A tensor of any device and layout. The bytes are copied before save() returns.
  virtual void put_tensor(std::string_view name, const at::Tensor& tensor) = 0;

 protected:
  virtual void attribute(std::string_view name, AttributeValue value, Role role) = 0;
  virtual void declare_option(std::string_view name) = 0;
};

class HOLDFAST_EXPORT StateReader {
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
  // A new CPU tensor with the recorded type and shape, contiguous whatever the strides were.
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

}}  // namespace holdfast::v0_2
