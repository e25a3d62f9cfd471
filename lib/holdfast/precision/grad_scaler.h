// Loss scaling for FP16, with the semantics and the numbers of torch.amp.GradScaler. It multiplies the loss,
// so that small gradients survive 16 bits. An overflow skips the update and halves the scale; 2,000 good
// updates double it.
//
//   scaler.scale(loss).backward();                            // once per micro-batch
//   const at::Tensor& found_inf = scaler.unscale(optimizer);  // once per update, before clipping
//   optimizer.step_scaled(std::nullopt, found_inf);           // optim/fused_step.h
//   scaler.update();                                          // before after_step
//
// Requires: dense gradients in FP32 or FP64 on one device (under autocast the weights are FP32).
// Errors: UsageError for impossible options, FP16 gradients, and calls out of order (below).
// Threads: the training thread, and its current CUDA stream.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/state/stateful.h"

namespace torch::optim {
class Optimizer;
}

namespace holdfast { inline namespace v0_2 {

struct GradScalerOptions {
  // Initial scale of the loss: torch.amp's default. Free to change on resume, which restores the present
  // scale.
  double init_scale = 65536;
  // The scale is multiplied by this when it grows. An option of the run: compared on resume, as the next two
  // are.
  double growth_factor = 2;
  // The scale is multiplied by this after a skipped update.
  double backoff_factor = 0.5;
  // Number of good updates in a row after which the scale grows.
  std::int64_t growth_interval = 2000;
};

// Calls out of order are a second unscale() before update(), update() without unscale(), and a save between
// the two.
//
// Only skipped() waits for a device. With an optimizer without step_scaled(), write `if
// (found_inf.item<float>() == 0) optimizer.step();`, which waits too. holdfast::Step does all of this.
//
// A skipped update changes no parameter, no slot and no step count of Adam. Schedules and averages of weights
// must not count it either (StepReport::skipped). Gradients that are summed over ranks overflow on all ranks,
// so their scalers agree. If ranks look at different gradients, give agree_by() a collective function
// (distributed/found_inf.h).
class HOLDFAST_EXPORT GradScaler {
 public:
  explicit GradScaler(c10::Device device, const GradScalerOptions& options = {});

  at::Tensor scale(const at::Tensor& loss) const;

  // Divides the gradients by the scale, in place, and checks whether all are finite. Ignores undefined
  // gradients. A gradient that is listed twice is divided once. Returns found_inf().
  const at::Tensor& unscale(const std::vector<at::Tensor>& gradients);
  const at::Tensor& unscale(const torch::optim::Optimizer& optimizer);  // gradients of all its parameters

  // Each unscale() ends with a call of `agree`, which may change found_inf before anything reads it. Not part
  // of the state.
  void agree_by(std::function<void(at::Tensor& found_inf)> agree) { agree_ = std::move(agree); }
  // Calls that function with another flag that skips an update, such as a norm that is not finite.
  void agree(at::Tensor& flag) const {
    if (agree_) agree_(flag);
  }

  // Call after the optimizer's step, skipped or not. Lowers the scale, or counts towards its growth.
  void update();

  // Float scalars on the device. Their memory stays the same while the scaler lives, because CUDA graphs
  // refer to it.
  const at::Tensor& scale_tensor() const { return scale_; }
  // Result of the newest unscale(). 0: all gradients were finite. Any other value: at least one was not.
  const at::Tensor& found_inf() const { return found_inf_; }

  // Number of skipped updates since the start of the run. Waits for the device.
  std::int64_t skipped() const;

  // Tensors "scale", "growth_tracker", "skipped"; options "growth_factor", "backoff_factor",
  // "growth_interval".
  static constexpr bool kKnowsNoPosition = true;
  static constexpr bool kKnowsNoRates = true;
  void save(StateWriter& out) const;
  void load(const StateReader& in);

 private:
  GradScalerOptions options_;
  std::function<void(at::Tensor&)> agree_;
  at::Tensor scale_;           // float
  at::Tensor growth_tracker_;  // int32
  at::Tensor found_inf_;       // float
  at::Tensor skipped_;         // int64
  bool unscaled_ = false;      // unscale() was called, update() was not
};

}}  // namespace holdfast::v0_2
