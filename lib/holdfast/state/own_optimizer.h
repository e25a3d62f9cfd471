// What a Holdfast optimizer tells OptimizerState (optimizer_state.h). It describes its options and slots;
// with the description of a torch::optim class, checkpoints of both are interchangeable. It also fetches step
// counts that live on a device.
//
// Requires: the class derives from torch::optim::Optimizer too. The options of its groups and the states of
// its parameters have the kind's types. Threads: the training thread.
#pragma once

#include <typeinfo>
#include <utility>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

class WholeTensors;
struct OptimizerKind;  // optimizer_fields.h

class HOLDFAST_EXPORT OwnOptimizer {
 public:
  virtual const OptimizerKind& kind() const = 0;
  // The class whose state the kind describes completely. OptimizerState refuses a derived class, because it
  // may have more state. A derived class without more state overrides this and returns its own typeid.
  virtual const std::type_info& described() const = 0;
  // True if updates go up the gradient. torch::optim in C++ has no such option, so it is recorded only if
  // true: a program that does not know it then refuses the checkpoint.
  virtual bool maximizes() const = 0;
  // Ensures: the parameters' states have the current step counts. Waits for a device that keeps the counts.
  virtual void settle() = 0;
  // From now on the parameters are shares of these tensors (whole_tensors.h). Null: they are whole tensors.
  // No effect on optimizers that update element by element.
  virtual void share(const WholeTensors* whole) = 0;

 protected:
  OwnOptimizer() = default;
  OwnOptimizer(const OwnOptimizer&) = default;
  OwnOptimizer& operator=(const OwnOptimizer&) = default;
  ~OwnOptimizer() = default;
};

// Marks the options of an optimizer whose slots another one has taken over, so that saving it is refused.
// clone() of such options removes the mark.
struct HOLDFAST_EXPORT SlotsAway {
  virtual ~SlotsAway() = default;
};
template <class Options>
struct OptionsWithSlotsAway final : Options, SlotsAway {
  explicit OptionsWithSlotsAway(Options options) : Options(std::move(options)) {}
};

}}  // namespace holdfast::v0_2
