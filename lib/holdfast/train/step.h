// The part of a training loop between a batch and an optimizer update, in any precision: forward, loss,
// backward, accumulation of micro-batches, loss scaling, clipping, update.
//
//   holdfast::Step step(optimizer, [&](const Batch& batch) { return cross_entropy(net->forward(…), …); },
//                       {.precision = Precision::fp16, .scaler = &scaler});
//   if (auto result = step.run(*batch)) …                  // one optimizer update was made
//
// Requires: optimizer and scaler outlive the step; Loss returns a scalar, the mean over the batch; the
// program calls set_math_mode() for TF32 (precision.h). Errors: UsageError for options that cannot work;
// GroupError for a lost rank. If the loss function throws, gradients are unusable: start over from a
// checkpoint. Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/data/loader.h"
#include "holdfast/precision/precision.h"
#include "holdfast/train/captured_pass.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace holdfast { inline namespace v0_2 {

class CastTogether;
class DataParallel;
class FusedStep;
class GradScaler;
class LateResults;
class SumOverRanks;

struct StepResult {
  double loss = 0;                  // mean over the update's micro-batches, of all ranks
  std::optional<double> grad_norm;  // before clipping; only with a limit
  bool skipped = false;             // the gradient was not finite: parameters and slots are unchanged
  std::int64_t update = 0;          // which update of the Step this is about; its first one is 1
};

struct StepOptions {
  // L2 norm over all parameters that the gradient is scaled down to; also skips updates whose gradient is not
  // finite. Costs a pass over the gradients. 0: off.
  double clip_grad_norm = 0;
  // L2 norm that each micro-batch's part of the gradient is scaled down to before it is added, as NVIDIA's
  // BERT for TensorFlow 1 does. Costs a second set of gradients during backward and two passes over them. 0:
  // off.
  double clip_micro_batches = 0;
  // Micro-batches of one update, each of as many samples; must equal the loader's.
  std::int64_t accumulation = 1;
  // Precision of the loss function. fp16 needs a scaler; any other precision may have one.
  Precision precision = Precision::fp32;
  GradScaler* scaler = nullptr;  // add it to the TrainState too
  // The model, whose weights 16-bit precisions then cast with one kernel instead of one for each layer
  // (precision/cast_together.h has the requirements). The bits are the same, unless the loss or a forward()
  // reads a layer's `weight` or `bias` itself: these are then the 16-bit ones. Null, or with several ranks:
  // each layer by itself.
  torch::nn::Module* layers = nullptr;
  // The other ranks; add it to the TrainState too. All ranks have the same options and equal batches in whole
  // updates (LoaderOptions::drop_last). Not together with clip_micro_batches, which needs gradients before
  // they are reduced.
  DataParallel* parallel = nullptr;
  // Replays forward and backward from CUDA graphs where possible. Off, because captured_pass.h demands much
  // of the loss function. Free to change on resume.
  bool graph = false;
  GraphOptions graph_options = {};
};

// The loss of an update is the mean of its micro-batches' losses, added in double in the order of delivery;
// with StepOptions::parallel it is the mean over all ranks too, with the same bits everywhere. The loss
// function runs under autocast (autocast.h), backward outside.
//
// An update whose gradients are not finite is skipped. It is a step nevertheless, with a loss and a number.
// Pass StepResult::skipped on as StepReport::skipped, let schedules use TrainState::step() - skipped(), and
// do not update averages of the weights. Trainer does so.
//
// run() waits for a device at every step; launch() does not, and result() reads the numbers later
// (docs/late_results.md). Both give the same bits. docs/precisions_and_optimizers.md#one-update-of-step has
// the rest.
class HOLDFAST_EXPORT Step {
 public:
  using Loss = std::function<at::Tensor(const Batch& batch)>;
  Step(torch::optim::Optimizer& optimizer, Loss loss, const StepOptions& options = {});
  ~Step();
  Step(Step&&) noexcept;
  Step& operator=(Step&&) noexcept;

  // The rate of the first parameter group, as the last update had it.
  double learning_rate() const;

  // Forward and backward of one micro-batch. After the last one of an update it calls `before_update` (for
  // Checkpointer::before_update and the learning rate) and makes the update. nullopt: more micro-batches must
  // come.
  std::optional<StepResult> run(const Batch& batch, const std::function<void()>& before_update = {});
  // Launches a step, without its result. True: an update was made, and result() will tell about it.
  bool launch(const Batch& batch, const std::function<void()>& before_update = {});
  // The result of the newest update; waits until the device has made it. Requires an update, and that no
  // launch() has begun another one since.
  StepResult result();
  // Not 0: the newest update was skipped. On the device, valid until the next update. Undefined: updates are
  // never skipped, because nothing checks the gradients.
  const at::Tensor& left_out() const { return left_out_; }
  // True if results come from a device, so that reading them at once would wait.
  bool on_device() const;

  DataParallel* parallel() const { return options_.parallel; }
  // True if the last micro-batch was a replay.
  bool replayed() const { return captured_ && captured_->replayed(); }
  // The loss function has changed (captured_pass.h): graphs are captured again.
  void forget_graph();

 private:
  void look_at_size(const Batch& batch, bool first);
  at::Tensor pass(const Batch& batch);
  at::Tensor forward(const Batch& batch);
  void backward(const at::Tensor& loss, bool last);
  void clipped_backward(const at::Tensor& loss);
  void update();
  void apply();

  torch::optim::Optimizer* optimizer_;
  FusedStep* fused_;  // the same optimizer, or null if it is no FusedStep
  Loss loss_;
  StepOptions options_;
  std::unique_ptr<CastTogether> casts_;     // nullptr: autocast casts each weight
  std::unique_ptr<CapturedPass> captured_;  // nullptr: without graphs
  std::vector<at::Tensor> losses_;          // of the micro-batches up to now
  std::int64_t samples_ = 0;                // of the first of these
  bool told_sizes_ = false, had_gradient_ = false;
  at::Tensor left_out_;
  std::unique_ptr<LateResults> results_;  // losses, norm if there is a limit, left_out if something checks
  std::int64_t updates_ = 0;
  std::unique_ptr<SumOverRanks> sum_;  // sum of all ranks' losses; nullptr without other ranks
};

}}  // namespace holdfast::v0_2
