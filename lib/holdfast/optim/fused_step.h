// The update of an optimizer that computes in a few fused kernels. FusedSgd, FusedAdam, FusedAdamW and Lamb
// are torch::optim::Optimizers with this mixin. `dynamic_cast<FusedStep*>(&optimizer)` tells whether an
// optimizer is one.
//
//   scaler.unscale(gradients);                                       // or no scaler at all
//   fused->step_scaled(std::nullopt, scaler.found_inf());            // the device decides whether to skip
//
// Errors: UsageError for gradients that the kernels cannot use (sparse, complex, of another type than their
// parameter) and for devices without such kernels. Nothing has changed then. Threads: the training thread;
// work goes to the current streams.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "holdfast/base/export.h"
#include "holdfast/state/own_optimizer.h"

namespace holdfast { inline namespace v0_2 {

class HOLDFAST_EXPORT FusedStep : public OwnOptimizer {
 public:
  // step() without a closure, with two optional tensors of a loss scaler. Both have one element of type
  // float. On the parameters' device no thread waits for them; from another device they are copied, which
  // waits.
  // - grad_scale: the kernel divides the gradients by it and leaves them divided.
  // - found_inf: 0 makes the update; any other value skips it, so parameters, slots and step counts stay.
  virtual void step_scaled(const std::optional<at::Tensor>& grad_scale,
                           const std::optional<at::Tensor>& found_inf) = 0;
  // Writes the groups' present learning rates to device memory, in stream order, if they have changed. GPU
  // kernels read the rate there, so that a captured update can be replayed at another rate. step_scaled()
  // calls this; call it yourself before each replay and before a capture. All other options are constants of
  // a capture. Make one update before a capture, because the first update allocates slots.
  virtual void write_rates() = 0;

 protected:
  FusedStep() = default;
  FusedStep(const FusedStep&) = default;
  FusedStep& operator=(const FusedStep&) = default;
  ~FusedStep() = default;
};

}}  // namespace holdfast::v0_2
