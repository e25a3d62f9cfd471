// The training loop of checkpointer.h written once: accumulation, learning rate, metrics, progress,
// evaluation after each epoch, an evaluation that an interruption cut short, the result. Trainer::run() is
// short on purpose: when it does not fit, copy it and change the copy.
//
//   holdfast::Trainer trainer({.state = state, .checkpointer = checkpointer, .model = *net, .data = loader,
//                              .step = step, .learning_rate = …}, {.steps = 7'810});
//   const int exit_code = trainer.run();
//   std::puts(to_line(trainer.result()).c_str());
//
// With several ranks (StepOptions::parallel, and a Checkpointer with companions) every rank runs a trainer
// over its Shard of the data, in whole updates (LoaderOptions::drop_last). All take the same steps and show
// the same losses; images per second are those of all. An evaluation adds up what each rank found in its
// Shard of the test data, so every rank has the result. Where buffers are broadcast
// (DataParallelOptions::broadcast_buffers) or there are none, it is that of one process within the rounding
// of sums; else each rank judges its Shard by running means of its own. Ranks exchange their scores batch by
// batch, one batch late and without waiting: a stop that any of them hears ends the evaluation on all, at
// most two batches later. Let rank 0 alone have sinks and print the result.
//
// Requires: all parts outlive the trainer; model, optimizer, schedule and data have been added to the state.
// Errors: UsageError from the constructor for options that cannot work, for data that is not divided over the
// ranks, and for training data with a rest that does not reach all of them; run() passes on what resume()
// throws, and what the model, the data or the optimizer throw; a failed save does not throw, it shows in the
// exit code. Threads: the training thread. Durability: what run() returns is Checkpointer::finish()'s
// promise.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/data/loader.h"
#include "holdfast/metrics/meter.h"
#include "holdfast/metrics/sink.h"
#include "holdfast/state/train_state.h"
#include "holdfast/train/step.h"

namespace holdfast::inline v1 {

class ProcessGroup;

// What one batch of test data says. Checkpoints record what an evaluation gives as the metrics
// "test_accuracy" and "test_loss".
struct Score {
  double correct = 0;   // number of right answers
  double loss_sum = 0;  // over the samples, not their mean
};

struct TrainerParts {
  TrainState& state;
  Checkpointer& checkpointer;
  torch::nn::Module& model;  // put into evaluation mode and back
  Loader& data;              // endless, or with as many epochs as the options' steps need
  Step& step;
  // Called right before the update that follows `applied` ones: sets the optimizer's rates, returns the one
  // to show. Updates that were left out (StepResult::skipped) do not count: a schedule stands still over
  // them, while steps and epochs go on.
  std::function<double(std::int64_t applied)> learning_rate;
  // Called after each update that was not left out, before a save can see it: the moment for an average of
  // the weights.
  std::function<void()> applied = {};
  // Called once after resume(), before the first step.
  std::function<void(const Resumed&)> resumed = {};
  // Both or none: an evaluation reads this loader from its beginning to its end, without gradients.
  Loader* test_data = nullptr;
  std::function<Score(const Batch&)> score = {};
  std::vector<MetricSink*> sinks = {};
};

struct TrainerOptions {
  std::int64_t steps = 0;  // the final step, counted from the beginning of the run
};

struct TrainerResult {
  enum class Outcome { complete, interrupted, failed };
  Outcome outcome = Outcome::failed;
  int exit_code = 0;
  std::int64_t step = 0;
  std::int64_t epochs = 0;                                 // whole passes over the data
  double loss = std::numeric_limits<double>::quiet_NaN();  // of the last step
  std::optional<double> test_accuracy;
  Duration training{};     // of this life's steps; start-up and evaluations are not in it
  std::string state;       // 32 hex digits
  std::string checkpoint;  // newest acknowledged file that this life added; empty: there was nothing to add
  std::string reason;      // why it stopped
};

// `complete step=… epoch=… loss=… test_accuracy=… state=…` or `interrupted step=… state=… checkpoint=…
// reason=…`, the words of which hold no blanks; empty when the run failed (standard error says why).
std::string to_line(const TrainerResult& result);

class Trainer {
 public:
  Trainer(TrainerParts parts, const TrainerOptions& options, const Clock& clock = Clock::real());

  // Resumes, trains to the final step or until an interruption, commits. Returns the exit code. Call once.
  int run();
  const TrainerResult& result() const { return result_; }

 private:
  struct Totals {
    Score score;
    double samples = 0;
  };

  void report(const Batch& batch, const StepResult& update, double learning_rate);
  std::optional<SavedEvent> newest_save() const;
  bool evaluate();                        // false: an interruption cut it short
  std::optional<EvaluationEvent> test();  // nullopt: likewise
  bool add_scores(Totals& totals);        // false: likewise
  bool add_scores_of_all(Totals& totals);
  int finish();

  TrainerParts parts_;
  TrainerOptions options_;
  ProcessGroup* group_ = nullptr;  // none: no other ranks
  const Clock& clock_;
  Meter meter_;
  TrainerResult result_;
  std::int64_t first_step_ = 0;  // where this life began
  std::int64_t samples_ = 0;     // of the update under way
  std::optional<std::int64_t> evaluated_;
  std::int64_t durable_told_ = -1;  // the durable step that the sinks know of
};

}  // namespace holdfast::inline v1
