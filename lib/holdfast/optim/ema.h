// An exponential moving average of a module's weights, which often evaluates better than the weights:
//
//   holdfast::Ema ema(*net, {.decay = 0.9999});
//   state.add("ema", ema);
//   …
//   optimizer.step(); ema.update();               // after an update that happened
//   { const auto averaged = ema.swap_in(); evaluate(*net); }
//
// update() number n (from 0): average = average + (1 - d) (weight - average), d = decay, or under warm_up
// d = min(decay, (1 + n) / (10 + n)), so that the first weights, which are random, are soon forgotten (as
// tf.train.ExponentialMovingAverage has it). Buffers (running statistics, counters) and parameters that are
// not floating-point are copied. The average starts as the weights are when the Ema is made.
//
// A skipped update: do not call update(), or, where only a device knows, update(found_inf) (fused_step.h):
// with 1, or more, no average advances (buffers are copied all the same). On a device nobody waits, and the
// count is kept there.
//
// The averages begin with the weights that the Ema was made with. Where those are overwritten before the
// first step (Resumed::fresh after --init-from, or weights that are only drawn then), call restart().
//
// Stateful: option "decay", "warm_up"; "updates"; tensors by the parameters' names.
//
// Requires: the module outlives this, and keeps its parameters (to(device), to(dtype) only before). No
// checkpoint while swapped in: save() throws UsageError.
// Errors: UsageError for a decay outside [0, 1], and for a second swap_in() at a time.
// Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "holdfast/state/stateful.h"

namespace torch::nn {
class Module;
}

namespace holdfast::inline v1 {

struct EmaOptions {
  double decay = 0.999;
  bool warm_up = true;
};

class Ema {
 public:
  explicit Ema(torch::nn::Module& module, const EmaOptions& options = {});

  void update();
  void update(const at::Tensor& found_inf);
  // Begins again with the weights as they are now, and no update behind it. UsageError while swapped in.
  void restart();
  // Updates that counted. Waits for a device that counts.
  std::int64_t updates() const;

  // While it lives, the module has the averages, and the weights are kept aside.
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

  void save(StateWriter& out) const;
  void load(const StateReader& in);

 private:
  struct Group {  // of one device and one type
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
  std::vector<Group> groups_;  // of those averaged
  std::int64_t updates_ = 0;
  at::Tensor device_updates_;  // defined: it counts, not updates_
  bool swapped_ = false;
};

}  // namespace holdfast::inline v1
