// The training loop of checkpointer.h, written once: accumulation, learning rate, metrics, progress,
// evaluation after each epoch, and the result. Trainer::run() is short on purpose: if it does not fit, copy
// it and change the copy.
//
//   holdfast::Trainer trainer({.state = state, .checkpointer = checkpointer, .model = *net, .data = loader,
//                              .step = step, .learning_rate = …}, {.steps = 7'810});
//   const int exit_code = trainer.run();
//   std::puts(to_line(trainer.result()).c_str());
//
// Requires: all parts outlive the trainer and have been added to the state. Errors: UsageError of the
// constructor; run() passes on what resume(), model, data and optimizer throw. A failed save shows in the
// exit code. Threads: the training thread. Durability: run() returns the result of Checkpointer::finish().
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/data/loader.h"
#include "holdfast/metrics/meter.h"
#include "holdfast/metrics/sink.h"
#include "holdfast/state/train_state.h"
#include "holdfast/train/step.h"

namespace holdfast { inline namespace v0_2 {

class Ema;
class ProcessGroup;
namespace internal {
class LateStep;
struct LaunchedStep;
}  // namespace internal

// The result of one batch of test data. Checkpoints record an evaluation as the metrics "test_accuracy" and
// "test_loss".
struct Score {
  double correct = 0;   // number of right answers
  double loss_sum = 0;  // sum over the samples, not the mean
};

struct TrainerParts {
  TrainState& state;
  Checkpointer& checkpointer;
  torch::nn::Module& model;  // switched to evaluation mode and back
  Loader& data;              // endless, or with enough epochs for the options' steps
  Step& step;
  // Called before the update that follows `applied` updates: sets the optimizer's rates and returns the rate
  // to report. Skipped updates (StepResult::skipped) do not count: a schedule stands still during them; steps
  // and epochs continue.
  std::function<double(std::int64_t applied)> learning_rate;
  // Called after each update that was not skipped, before a save can see it. If updates can be skipped, the
  // trainer waits for a device at each step to know it.
  std::function<void()> applied = {};
  // Updated after each update that was not skipped, before a save can see it. Never waits for a device.
  Ema* average = nullptr;
  // Called once after resume(), before the first step.
  std::function<void(const Resumed&)> resumed = {};
  // Both or none. An evaluation reads this loader, of one epoch, from start to end, without gradients.
  Loader* test_data = nullptr;
  std::function<Score(const Batch&)> score = {};
  std::vector<MetricSink*> sinks = {};
};

struct TrainerOptions {
  std::int64_t steps = 0;  // the final step, counted from the start of the run
  // Every so many steps the sinks get a histogram of each parameter and of its gradient, which fp16 scales.
  // Costs a few passes over both, and a copy to the host for each. 0: never.
  std::int64_t histograms_every = 0;
};

struct TrainerResult {
  enum class Outcome { complete, interrupted, failed };
  Outcome outcome = Outcome::failed;
  int exit_code = 0;
  std::int64_t step = 0;
  std::int64_t epochs = 0;                                 // whole passes over the data
  double loss = std::numeric_limits<double>::quiet_NaN();  // of the last step
  std::optional<double> test_accuracy;
  Duration training{};     // time of this process's steps, without start-up and evaluations
  std::string state;       // 32 hex digits
  std::string checkpoint;  // newest acknowledged file that this process added; empty: none
  std::string reason;      // why it stopped
};

// `complete step=… epoch=… loss=… test_accuracy=… state=…` or `interrupted step=… state=… checkpoint=…
// reason=…`. Values have no blanks. Empty if the run failed; standard error has the reason.
HOLDFAST_EXPORT std::string to_line(const TrainerResult& result);

// For BackgroundOptions::status: the checkpoints, the notices and the work at risk of this attempt. Any
// thread, after resume().
HOLDFAST_EXPORT StatusEvent status_of(const Checkpointer& checkpointer, const Clock& clock = Clock::real());

// With several ranks (StepOptions::parallel, and RanksOptions::channel) each rank runs a trainer
// over its Shard of the data, in whole updates (LoaderOptions::drop_last). All take the same steps and report
// the same losses; images per second are those of all ranks. Give sinks to rank 0 only, and print the result
// there.
//
// An evaluation adds the scores of all ranks' Shards, so every rank has the result. If buffers are broadcast
// (DataParallelOptions::broadcast_buffers) or there are none, it equals that of one process up to rounding of
// sums. Otherwise each rank evaluates with its own running means. Ranks exchange scores one batch late,
// without waiting. A stop that one rank hears ends the evaluation on all, at most two batches later.
//
// If the model is on a device, the trainer learns the result of a step one step late, when it has launched
// the next forward and backward pass (docs/late_results.md). The sinks hear of each step exactly once, in
// order, and before a checkpoint of that step can exist. Bits, ledger and exit codes are the same either way.
//
// The constructor throws UsageError for impossible options, for data that is not divided over the ranks, and
// for training data whose last update does not reach all ranks.
class HOLDFAST_EXPORT Trainer {
 public:
  Trainer(TrainerParts parts, const TrainerOptions& options, const Clock& clock = Clock::real());
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Resumes, trains to the final step or until an interruption, commits, and returns the exit code. Call
  // once.
  int run();
  const TrainerResult& result() const { return result_; }

 private:
  struct Totals {
    Score score;
    double samples = 0;
  };

  void train(const Batch& batch, bool& stop);
  bool knows_late(std::int64_t step, bool evaluation_due) const;
  void report(const internal::LaunchedStep& launched, const StepResult& update);
  std::optional<SavedEvent> newest_save() const;
  bool wants_tensors(std::int64_t step) const;
  void report_tensors(std::int64_t step);
  bool evaluate();                        // false: an interruption ended it
  std::optional<EvaluationEvent> test();  // nullopt: as evaluate()
  bool add_scores(Totals& totals);        // false: as evaluate()
  bool add_scores_of_all(Totals& totals);
  int finish();

  TrainerParts parts_;
  TrainerOptions options_;
  ProcessGroup* group_ = nullptr;  // null without other ranks
  const Clock& clock_;
  Meter meter_;
  const bool late_results_;
  const std::shared_ptr<internal::LateStep> late_;
  TrainerResult result_;
  std::int64_t first_step_ = 0;  // where this process began
  std::int64_t samples_ = 0;     // of the present update
  Duration told_work_{};         // of all steps that the sinks know
  std::optional<std::int64_t> evaluated_;
  std::int64_t durable_told_ = -1;  // the newest durable step that the sinks know
};

}}  // namespace holdfast::v0_2
