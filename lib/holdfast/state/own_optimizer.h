// What an optimizer of this library tells OptimizerState (optimizer_state.h): whose state it keeps, so that a
// checkpoint of it is one of torch::optim's and the other way round; and a chance to bring the state up to
// date that a device has counted on by itself.
//
// Requires: the class is derived from torch::optim::Optimizer as well, and its groups' options and its
// parameters' states are of the kind's types.
// Threads: the training thread.
#pragma once

#include <typeinfo>
#include <utility>

namespace holdfast::inline v1 {

class WholeTensors;

class OwnOptimizer {
 public:
  enum class Kind { sgd, adam, adamw, lamb };

  virtual Kind kind() const = 0;
  // The class whose state the kind describes in full. One derived from it may have more, which no checkpoint
  // would hold: it is refused, unless it overrides this with its own typeid to say that it has none.
  virtual const std::type_info& described() const = 0;
  // Updates go up the gradient. torch::optim has no such option: recorded only where it is true, so that such
  // a checkpoint is refused where nobody would know of it.
  virtual bool maximizes() const = 0;
  // Afterwards the parameters' states say how many updates were counted. Waits for a device that counts.
  virtual void settle() = 0;
  // From now on its parameters are shares of these tensors (whole_tensors.h); null: they are whole. Nothing
  // happens where updates go element by element.
  virtual void share(const WholeTensors* whole) = 0;

 protected:
  OwnOptimizer() = default;
  OwnOptimizer(const OwnOptimizer&) = default;
  OwnOptimizer& operator=(const OwnOptimizer&) = default;
  ~OwnOptimizer() = default;
};

// Marks the options of an optimizer whose slots another has taken over, so that nobody saves it without them.
// A clone() of such options is unmarked.
struct SlotsAway {
  virtual ~SlotsAway() = default;
};
template <class Options>
struct OptionsWithSlotsAway final : Options, SlotsAway {
  explicit OptionsWithSlotsAway(Options options) : Options(std::move(options)) {}
};

}  // namespace holdfast::inline v1
