// An exponential moving average (EMA) of a module's weights, which often evaluates better than the weights:
//
//   holdfast::Ema ema(*net, {.decay = 0.9999});
//   state.add("ema", ema);
//   optimizer.step(); ema.update();               // only after an update that was not skipped
//   { const auto averaged = ema.swap_in(); evaluate(*net); }
//
// Requires: the module outlives the Ema and keeps its parameters; call to(device) and to(dtype) before.
// Errors: UsageError for a decay outside [0, 1], and for a second swap_in() of the module, an update, a
// restart() or a load while swapped in. Threads: the training thread, which also makes the saves.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/state/stateful.h"

namespace torch::nn {
class Module;
}

namespace holdfast { inline namespace v0_2 {

struct EmaOptions {
  // Weight of the old average in each update, 0 to 1. An option of the run: compared on resume. Each update
  // costs one pass over the weights, and the averages as much memory as the weights.
  double decay = 0.999;
  // Starts with a smaller decay, so that the random first weights are soon forgotten. Compared on resume.
  bool warm_up = true;
};

// Update number n (from 0) computes average += (1 - d) (weight - average) with d = decay, or with warm_up d =
// min(decay, (1 + n) / (10 + n)), as tf.train.ExponentialMovingAverage does. Buffers and parameters that are
// not floating-point are copied.
//
// Stateful: options "decay" and "warm_up", attribute "updates", and one tensor per parameter and buffer.
class HOLDFAST_EXPORT Ema {
 public:
  explicit Ema(torch::nn::Module& module, const EmaOptions& options = {});

  // Call only after an update that was not skipped.
  void update();
  // If found_inf (fused_step.h) is not 0, no average advances; on a device buffers are copied all the same.
  // On a device it does not wait: the device keeps the count.
  void update(const at::Tensor& found_inf);
  // Starts again from the present weights, with no updates. Call it if weights are overwritten before the
  // first step (Resumed::fresh after --init-from). UsageError while swapped in.
  void restart();
  // Number of updates that were not skipped. Waits for a device that keeps the count.
  std::int64_t updates() const;

  // While this object lives, the module has the averages; the Ema keeps the weights, and saves take these.
  class [[nodiscard]] Swapped {
   public:
    explicit Swapped(Ema& ema);
    ~Swapped();
    Swapped(const Swapped&) = delete;
    Swapped& operator=(const Swapped&) = delete;

   private:
    Ema* ema_;
  };
  Swapped swap_in() { return Swapped(*this); }

  static constexpr bool kKnowsNoPosition = true;
  static constexpr bool kKnowsNoRates = true;
  void save(StateWriter& out) const;
  void load(const StateReader& in);

 private:
  struct Group {  // tensors of one device and one type
    std::vector<at::Tensor> weights, averages;
  };
  struct Named {
    std::string name;
    at::Tensor weight, average;
    bool averaged;
  };
  double decay(std::int64_t n) const;
  void exchange();
  void copy_rest();
  void group();

  EmaOptions options_;
  std::vector<Named> tensors_;
  std::vector<Group> groups_;  // of the averaged tensors
  std::vector<Group> rest_;    // of those that are copied
  std::int64_t updates_ = 0;
  at::Tensor device_updates_;  // defined: the device counts here instead of in updates_
  bool swapped_ = false;
};

}}  // namespace holdfast::v0_2
