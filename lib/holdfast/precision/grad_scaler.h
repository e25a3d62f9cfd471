// Loss scaling for FP16, with the semantics and the numbers of torch.amp.GradScaler: the loss is multiplied
// by a scale so that small gradients survive 16 bits; an update whose gradients overflowed is left out and
// halves the scale; 2,000 good ones in a row double it.
//
//   GradScaler scaler(device);
//   state.add("scaler", scaler);                              // Stateful: scale, tracker, count of skips
//   …
//   scaler.scale(loss).backward();                            // as often as batches are accumulated
//   const at::Tensor& found_inf = scaler.unscale(optimizer);  // once an update; then clip, if you clip
//   optimizer.step_scaled(std::nullopt, found_inf);           // a fused one (optim/fused_step.h): no wait
//   scaler.update();                                          // before after_step
//
// With any other optimizer: if (found_inf.item<float>() == 0) optimizer.step(); this waits for the device.
// holdfast::Step does all of it. Nothing here waits for a device except skipped().
//
// A skipped update changes no parameter, no slot and no step count of Adam; it must not advance a schedule or
// an average of the weights either (StepReport::skipped). Gradients summed over ranks overflow on every rank
// alike, so their scalers agree. Where ranks look at different gradients, agree_by() a function that makes
// the answer of one that of all (distributed/found_inf.h has it).
//
// Requires: gradients in FP32 or FP64 (the weights are FP32 under autocast), dense, on one device.
// Errors: UsageError for options that cannot work, for gradients in FP16, and for calls out of order: a
// second unscale() before update(), update() without unscale(), a save between the two. Threads: the training
// thread. With CUDA: its current stream.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "holdfast/state/stateful.h"

namespace torch::optim {
class Optimizer;
}

namespace holdfast::inline v1 {

struct GradScalerOptions {
  double init_scale = 65536;            // free to change on resume: the scale goes on where it was
  double growth_factor = 2;             // the other three are options of the run, compared on resume
  double backoff_factor = 0.5;          // of an update that is left out
  std::int64_t growth_interval = 2000;  // good updates in a row before the scale grows
};

class GradScaler {
 public:
  explicit GradScaler(c10::Device device, const GradScalerOptions& options = {});

  at::Tensor scale(const at::Tensor& loss) const;

  // Divides the gradients by the scale, in place, and finds out whether any of them is not finite. Undefined
  // ones are left alone. Returns found_inf().
  const at::Tensor& unscale(const std::vector<at::Tensor>& gradients);
  const at::Tensor& unscale(const torch::optim::Optimizer& optimizer);  // of all its parameters

  // From now on each unscale() ends with this: a chance to change what was found before anybody acts upon it.
  // A part of the program, not of the state.
  void agree_by(std::function<void(at::Tensor& found_inf)> agree) { agree_ = std::move(agree); }

  // After the optimizer had its step, or not: halves the scale, or counts towards its growth.
  void update();

  // Float scalars on the device, which stay where they are for the scaler's life (CUDA graphs hold them).
  const at::Tensor& scale_tensor() const { return scale_; }
  // Of the newest unscale(). 0: all were finite; anything else: not.
  const at::Tensor& found_inf() const { return found_inf_; }

  // Updates left out so far, over all lives of the run. Waits for the device.
  std::int64_t skipped() const;

  // Tensors "scale" and "growth_tracker", "skipped"; options "growth_factor", "backoff_factor",
  // "growth_interval".
  void save(StateWriter& out) const;
  void load(const StateReader& in);

 private:
  GradScalerOptions options_;
  std::function<void(at::Tensor&)> agree_;
  at::Tensor scale_;           // float
  at::Tensor growth_tracker_;  // int32
  at::Tensor found_inf_;       // float
  at::Tensor skipped_;         // int64
  bool unscaled_ = false;      // and not updated yet
};

}  // namespace holdfast::inline v1
