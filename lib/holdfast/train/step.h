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
// With StepOptions::graph, forward and backward are replays of CUDA graphs (captured_pass.h, which says what
// that asks of the loss function): where launching kernels takes longer than computing them, a step is that
// much shorter. Its bits stay those of the plain step, with deterministic kernels. Where it cannot be done,
// one warning says why and the plain step goes on.
//
// With StepOptions::parallel the update is that of all ranks together: gradients are averaged over them in
// the last micro-batch's backward pass, and the loss is the mean over all ranks and micro-batches, the same
// bits everywhere. Its sum is under way beside that backward pass and costs no other wait. Since all ranks
// have the same averages, their scalers and limits decide alike. Graphs are left out then, aloud.
//
// Requires: optimizer and scaler outlive the step. Loss returns a scalar (of any floating type, on any
// device) that is the mean over the batch. set_math_mode() for TF32 is the program's (precision.h). Errors:
// UsageError for options that cannot work (FP16 without a scaler among them), or when an optimizer's step
// needs a closure (LBFGS); GroupError when another rank is lost; what the loss function throws passes
// through, and leaves gradients behind that the next run() must not use: start over from a checkpoint.
// Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "holdfast/data/loader.h"
#include "holdfast/precision/precision.h"
#include "holdfast/train/captured_pass.h"

namespace torch::optim {
class Optimizer;
}

namespace holdfast::inline v1 {

class DataParallel;
class FusedStep;
class GradScaler;
class SumOverRanks;

struct StepResult {
  double loss = 0;                  // mean over the micro-batches of the update, of all ranks
  std::optional<double> grad_norm;  // before clipping; only measured when there is a limit
  bool skipped = false;             // the gradient was not finite: parameters and slots are as before
};

struct StepOptions {
  // Scales the gradient down to this L2 norm over all parameters, and leaves out updates whose gradient is
  // not finite. Costs a pass over the gradients. 0: off.
  double clip_grad_norm = 0;
  // Scales what each micro-batch adds to the gradient (that of its part of the mean loss) down to this L2
  // norm before it is added, as NVIDIA's BERT for TensorFlow 1 does. Costs a second set of gradients while
  // backward runs, and two passes over them. 0: off.
  double clip_micro_batches = 0;
  // Micro-batches of one update; must be the loader's.
  std::int64_t accumulation = 1;
  // What the loss function computes in. fp16 needs a scaler; any other precision may have one.
  Precision precision = Precision::fp32;
  GradScaler* scaler = nullptr;  // add it to the TrainState
  // The other ranks; add it to the TrainState. All ranks have the same options, and batches of equal size: in
  // whole updates (LoaderOptions::drop_last).
  // Not with clip_micro_batches, which would need gradients that are reduced one by one.
  DataParallel* parallel = nullptr;
  // Replays forward and backward from CUDA graphs where that can be done. Free to change on resume.
  bool graph = false;
  GraphOptions graph_options = {};
};

class Step {
 public:
  using Loss = std::function<at::Tensor(const Batch& batch)>;
  Step(torch::optim::Optimizer& optimizer, Loss loss, const StepOptions& options = {});
  ~Step();
  Step(Step&&) noexcept;
  Step& operator=(Step&&) noexcept;

  // Forward and backward of one micro-batch. After the last one of an update: `before_update` (the moment for
  // Checkpointer::before_update and the learning rate), then the update. nullopt: more micro-batches to come.
  std::optional<StepResult> run(const Batch& batch, const std::function<void()>& before_update = {});

  DataParallel* parallel() const { return options_.parallel; }
  // Was the last micro-batch a replay?
  bool replayed() const { return captured_ && captured_->replayed(); }
  // What the loss function does has changed (captured_pass.h): graphs are captured anew.
  void forget_graph();

 private:
  at::Tensor pass(const Batch& batch);
  at::Tensor forward(const Batch& batch);
  void backward(const at::Tensor& loss, bool last);
  void clipped_backward(const at::Tensor& loss);
  StepResult update();
  double mean_loss();
  void apply(const at::Tensor& left_out);

  torch::optim::Optimizer* optimizer_;
  FusedStep* fused_;  // the same, where it can
  Loss loss_;
  StepOptions options_;
  std::unique_ptr<CapturedPass> captured_;  // nullptr: without graphs
  std::vector<at::Tensor> losses_;          // of the micro-batches so far
  std::unique_ptr<SumOverRanks> sum_;       // of all ranks' losses; nullptr: no other ranks
};

}  // namespace holdfast::inline v1
