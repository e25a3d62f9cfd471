// The part of a training loop between a batch and an optimizer update: forward, loss, backward, accumulation
// of micro-batches, loss scaling, clipping, the update itself; in any precision.
//
//   holdfast::Step step(optimizer, [&](const Batch& batch) { return cross_entropy(net->forward(…), …); },
//                       {.precision = Precision::fp16, .scaler = &scaler});
//   if (auto result = step.run(*batch)) …                  // one optimizer update was made
//
// The loss of an update is the mean of its micro-batches' losses, added up in double in the order of
// delivery: equal batches give equal bits. The gradient is that of the mean as well. The loss function runs
// under autocast of the precision (autocast.h), backward outside. The scaler scales each micro-batch's loss,
// and looks at the accumulated gradient once.
//
// An update whose gradients are not finite is left out: parameters, slots and Adam's counts stay as they are,
// the scale is halved. It is a step all the same: it used its data up, it has its loss, its number and its
// line, and a run that overflows for ever still ends, saves and can be stopped. But it must not advance what
// counts applied updates: pass StepResult::skipped on as StepReport::skipped, let schedules go by
// TrainState::step() - skipped(), and leave averages of the weights alone. Trainer does so.
//
// A FusedStep optimizer (optim/fused_step.h) decides on its device; with any other the host has to look
// before it may step, where there is a scaler or a limit to the norm. Losses, norm and whether the update was
// left out are read once it is under way: a device never idles between backward and update.
//
// Requires: optimizer and scaler outlive the step. Loss returns a scalar (of any floating type, on any
// device) that is the mean over the batch. set_math_mode() for TF32 is the program's (precision.h). Errors:
// UsageError for options that cannot work (FP16 without a scaler among them), or when an optimizer's step
// needs a closure (LBFGS); what the loss function throws passes through, and leaves gradients behind that the
// next run() must not use: start over from a checkpoint. Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "holdfast/data/loader.h"
#include "holdfast/precision/precision.h"

namespace torch::optim {
class Optimizer;
}

namespace holdfast::inline v1 {

class FusedStep;
class GradScaler;

struct StepResult {
  double loss = 0;                  // mean over the micro-batches of the update
  std::optional<double> grad_norm;  // before clipping; only measured when there is a limit
  bool skipped = false;             // the gradient was not finite: parameters and slots are as before
};

struct StepOptions {
  // Scales the gradient down to this L2 norm over all parameters, and leaves out updates whose gradient is
  // not finite. Costs a pass over the gradients. 0: off.
  double clip_grad_norm = 0;
  // Micro-batches of one update; must be the loader's.
  std::int64_t accumulation = 1;
  // What the loss function computes in. fp16 needs a scaler; any other precision may have one.
  Precision precision = Precision::fp32;
  GradScaler* scaler = nullptr;  // add it to the TrainState
};

class Step {
 public:
  using Loss = std::function<at::Tensor(const Batch& batch)>;
  Step(torch::optim::Optimizer& optimizer, Loss loss, const StepOptions& options = {});

  // Forward and backward of one micro-batch. After the last one of an update: `before_update` (the moment for
  // Checkpointer::before_update and the learning rate), then the update. nullopt: more micro-batches to come.
  std::optional<StepResult> run(const Batch& batch, const std::function<void()>& before_update = {});

 private:
  at::Tensor forward(const Batch& batch);
  void backward(const at::Tensor& loss);
  StepResult update();
  void apply(const at::Tensor& left_out);

  torch::optim::Optimizer* optimizer_;
  FusedStep* fused_;  // the same, where it can
  Loss loss_;
  StepOptions options_;
  std::vector<at::Tensor> losses_;  // of the micro-batches so far
};

}  // namespace holdfast::inline v1
