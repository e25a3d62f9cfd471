// The update of an optimizer that computes in a few fused kernels: FusedSgd, FusedAdam, FusedAdamW and Lamb
// are torch::optim::Optimizers with this mixin. `dynamic_cast<FusedStep*>(&optimizer)` tells whether one is.
//
//   scaler.unscale(gradients);                                       // or no scaler at all
//   fused->step_scaled(std::nullopt, scaler.found_inf());            // the device decides whether to skip
//
// step_scaled() is step() without a closure, and with two tensors of a loss scaler, each optional:
//   grad_scale  gradients are divided by it in the same kernel, and left divided;
//   found_inf   1, or more: this update does not happen. Parameters, slots and counted steps are as before.
//               0: it does.
// Both are of type float with one element; on the parameters' device nobody waits for their values. On
// another device they are copied there, which waits.
//
// Learning rates. For parameters on a GPU the kernels read the rate from device memory, so that a captured
// update can be replayed at another rate. write_rates() puts the groups' present rates there, in stream
// order, and does nothing where they have not changed. step_scaled() calls it; a replay cannot, so call it
// before each, and before a capture begins. All other options are constants of a capture.
// For the same reason update once before a capture: slots are made in the first update.
//
// Errors: UsageError for gradients that the kernels cannot use (sparse, of another type than their
// parameter, complex) and devices without such kernels; nothing has been changed then.
// Threads: the training thread; work goes to the current streams.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "holdfast/state/own_optimizer.h"

namespace holdfast::inline v1 {

class FusedStep : public OwnOptimizer {
 public:
  virtual void step_scaled(const std::optional<at::Tensor>& grad_scale,
                           const std::optional<at::Tensor>& found_inf) = 0;
  virtual void write_rates() = 0;

 protected:
  FusedStep() = default;
  FusedStep(const FusedStep&) = default;
  FusedStep& operator=(const FusedStep&) = default;
  ~FusedStep() = default;
};

}  // namespace holdfast::inline v1
