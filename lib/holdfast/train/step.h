// The part of a training loop between a batch and an optimizer update: forward, loss, backward, accumulation
// of micro-batches, clipping, the update itself.
//
//   holdfast::Step step(optimizer, [&](const Batch& batch) { return cross_entropy(net->forward(…), …); });
//   if (auto result = step.run(*batch)) …                  // one optimizer update was applied
//
// The loss of an update is the mean of its micro-batches' losses, added up in double in the order of
// delivery: equal batches give equal bits. The gradient is that of the mean as well.
//
// Requires: the optimizer outlives the step. Loss returns a scalar (of any floating type, on any device) that
// is the mean over the batch. Reading its value waits for the device, once a micro-batch.
// Errors: UsageError for options that cannot work, or when an optimizer's step needs a closure (LBFGS); what
// the loss function throws passes through, and leaves gradients behind that the next run() must not use:
// start over from a checkpoint.
// Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "holdfast/data/loader.h"

namespace torch::optim {
class Optimizer;
}

namespace holdfast::inline v1 {

struct StepResult {
  double loss = 0;                  // mean over the micro-batches of the update
  std::optional<double> grad_norm;  // before clipping; only measured when there is a limit
  bool skipped = false;             // the gradient was not finite: parameters and slots are as before
};

struct StepOptions {
  // Scales the gradient down to this L2 norm over all parameters, and leaves out updates whose gradient is
  // not finite. Costs one pass over the gradients and a wait for the device. 0: off.
  double clip_grad_norm = 0;
  // Micro-batches of one update; must be the loader's.
  std::int64_t accumulation = 1;
};

class Step {
 public:
  using Loss = std::function<at::Tensor(const Batch& batch)>;
  Step(torch::optim::Optimizer& optimizer, Loss loss, const StepOptions& options = {});

  // Forward and backward of one micro-batch. After the last one of an update: `before_update` (the moment for
  // Checkpointer::before_update and the learning rate), then the update. nullopt: more micro-batches to come.
  std::optional<StepResult> run(const Batch& batch, const std::function<void()>& before_update = {});

 private:
  StepResult update();

  torch::optim::Optimizer* optimizer_;
  Loss loss_;
  StepOptions options_;
  double loss_sum_ = 0;
  std::int64_t micro_batches_ = 0;
};

}  // namespace holdfast::inline v1
