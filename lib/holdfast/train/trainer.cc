#include "holdfast/train/trainer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include "holdfast/base/bits.h"
#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/system/machine.h"
#include "holdfast/base/text.h"
#include "holdfast/distributed/data_parallel.h"
#include "holdfast/distributed/sum_over_ranks.h"
#include "holdfast/optim/ema.h"
#include "holdfast/snapshot/digest.h"
#include "holdfast/train/internal/late_step.h"
#include "holdfast/train/internal/loader_checks.h"
#include "holdfast/train/tensor_histogram.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// Restores the mode of each submodule: Module::train() would also switch those that the user keeps in
// evaluation mode.
class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& model) {
    for (const auto& module : model.modules()) flags_.emplace_back(module, module->is_training());
    model.eval();
  }
  ~EvaluationMode() {
    // Parents first: train() overwrites the children's flags, which are restored after it.
    for (const auto& [module, training] : flags_) module->train(training);
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> flags_;
};

std::string one_word(std::string text) {
  text.erase(std::min(text.find(" from "), text.size()));  // "SIGTERM from process 4711"
  std::replace(text.begin(), text.end(), ' ', '_');
  return text.empty() ? "none" : text;
}

// The cursor at the end of an epoch counts dropped samples too (drop_last), on which nothing was trained.
std::int64_t samples_until(const Loader& loader, Cursor cursor) {
  const LoaderOptions& options = loader.options();
  const std::int64_t update = options.batch_size * options.shard.world * options.accumulation;
  const std::int64_t epoch = std::min(loader.size(), loader.updates_per_epoch() * update);
  return cursor.epoch * epoch + std::min(cursor.samples, epoch);
}

std::optional<SavedEvent> newest_save_of(const RunFigures& figures) {
  if (figures.last_step < 0) return std::nullopt;  // the newest save is an earlier attempt's
  const SaveFigures& save = figures.last;
  return SavedEvent{.step = figures.last_step,
                    .bytes = save.bytes,
                    .blocked = save.blocked,
                    .staging = save.staging,
                    .write = save.write,
                    .commit = save.commit,
                    .risk_steps = save.risk_steps,
                    .risk_time = save.risk_time};
}

}  // namespace

StatusEvent status_of(const Checkpointer& checkpointer, const Clock& clock) {
  const RunFigures figures = checkpointer.figures();
  const Durable durable = checkpointer.last_durable();
  const SteadyTime now = clock.now();
  const WallTime wall = clock.wall_now();
  // A time of the steady clock means nothing outside this machine's present boot.
  const auto wall_of = [&](SteadyTime time) {
    return wall + std::chrono::duration_cast<WallTime::duration>(time - now);
  };
  StatusEvent status{.commits = figures.durable,
                     .written_bytes = figures.bytes,
                     .failures = {{"no_space", figures.failed_for_space},
                                  {"other", figures.failed - figures.failed_for_space}},
                     .newest = newest_save_of(figures),
                     .durable_step = durable.step,
                     .durable_at = wall_of(durable.when),
                     .risk_time = figures.risk_time,
                     .at = wall};
  const Duration life = process_age().value_or(figures.elapsed);
  const Duration safe = figures.elapsed - figures.blocked - figures.risk_time;
  if (life > Duration::zero() && safe > Duration::zero()) {
    // The age is known to 10 ms only, so that the share of a short life could exceed 1.
    status.goodput = std::min(std::chrono::duration<double>(safe) / std::chrono::duration<double>(life), 1.0);
  }
  for (const Notice& notice : checkpointer.notices()) {
    if (notice.kind == NoticeKind::stop || notice.kind == NoticeKind::deadline)
      ++status.notices[notice.source];
  }
  if (const auto deadline = checkpointer.deadline()) status.deadline = wall_of(*deadline);
  return status;
}

Trainer::Trainer(TrainerParts parts, const TrainerOptions& options, const Clock& clock)
    : parts_(std::move(parts)),
      options_(options),
      clock_(clock),
      meter_(clock),
      late_results_(env_flag(kEnvLateResults).value_or(parts_.step.on_device())),
      late_(std::make_shared<internal::LateStep>(
          parts_.step, [this](const internal::LaunchedStep& launched, const StepResult& update) {
            report(launched, update);
          })) {
  if (options_.steps < 1) throw UsageError("a trainer needs a final step of at least 1");
  parts_.state.rates_follow_position();  // learning_rate is a function of the updates
  if ((parts_.test_data != nullptr) != (parts_.score != nullptr)) {
    throw UsageError("a trainer evaluates with test data and a score: give both or none");
  }
  const DataParallel* const parallel = parts_.step.parallel();
  if (parallel != nullptr && !parallel->group().alone()) group_ = &parallel->group();
  internal::check_training_data(parts_.data, group_, options_.steps);
  if (parts_.test_data != nullptr) internal::check_test_data(*parts_.test_data, group_);
}

// The checkpointer may outlive this trainer and still hold the newest step's report.
Trainer::~Trainer() { late_->part(); }

int Trainer::run() {
  TrainState& state = parts_.state;
  Checkpointer& checkpointer = parts_.checkpointer;
  const Resumed resumed = checkpointer.resume();
  checkpointer.expect_last_step(options_.steps);
  if (parts_.resumed) parts_.resumed(resumed);
  // The weights may be others than those that the average was made with (init_from).
  if (resumed.fresh && parts_.average != nullptr) parts_.average->restart();
  first_step_ = state.step();
  durable_told_ = checkpointer.last_durable().step;
  result_.loss = resumed.loss;
  const BeginEvent begun{.step = first_step_,
                         .attempt = checkpointer.attempt(),
                         .loss = resumed.loss,
                         .learning_rate = parts_.step.learning_rate(),
                         .evaluation_due = resumed.evaluation_due,
                         .branch = resumed.branch};
  for (MetricSink* sink : parts_.sinks) {
    sink->begin(begun);
    checkpointer.commit_after(sink->row_sync());
  }

  bool stop = checkpointer.tick();  // a stop may be requested before the first step
  if (!stop && resumed.evaluation_due && parts_.test_data != nullptr) stop = !evaluate();
  meter_.begin();
  while (!stop && state.step() < options_.steps) {
    const std::optional<Batch> batch = parts_.data.next();
    if (!batch) break;
    train(*batch, stop);
  }
  // A complete run that is started again still prints its result.
  if (!stop && parts_.test_data != nullptr && evaluated_ != state.step()) evaluate();
  return finish();
}

void Trainer::train(const Batch& batch, bool& stop) {
  TrainState& state = parts_.state;
  Checkpointer& checkpointer = parts_.checkpointer;
  samples_ += batch.inputs.size(0) * (group_ != nullptr ? group_->world_size() : 1);
  double learning_rate = 0;
  const bool updated = parts_.step.launch(batch, [&] {
    // In this order: before_update() learns whether the last update was skipped, and the rate depends on it.
    checkpointer.before_update();
    learning_rate = parts_.learning_rate(state.step() - state.skipped());
  });
  if (!updated) return;  // more micro-batches must come: this is no step boundary, and nothing can be saved

  const std::int64_t step = state.step() + 1;
  late_->launched({.step = step,
                   .epoch = batch.epoch,
                   .cursor = batch.cursor,
                   .samples = std::exchange(samples_, 0),
                   .learning_rate = learning_rate});
  const at::Tensor& left_out = parts_.step.left_out();
  if (parts_.average != nullptr) {
    left_out.defined() ? parts_.average->update(left_out) : parts_.average->update();
  }
  const bool evaluation_due = parts_.test_data != nullptr && (batch.last_in_epoch || step == options_.steps);
  StepReport report{.applied = batch.cursor, .evaluation_due = evaluation_due};
  if (knows_late(step, evaluation_due)) {
    if (parts_.applied) parts_.applied();
    report.late = late_;
  } else {
    // Before after_step: a saved step must have its line, even if the machine disappears right after the
    // save.
    const LateReport::Numbers numbers = late_->read();
    if (parts_.applied && !numbers.skipped) parts_.applied();
    report.loss = numbers.loss;
    report.skipped = numbers.skipped;
  }
  stop = checkpointer.after_step(report).stop || (evaluation_due && !evaluate());
}

// Not where something looks at this step at once: an evaluation, the end, a histogram, or a function that is
// called for updates that were made.
bool Trainer::knows_late(std::int64_t step, bool evaluation_due) const {
  if (!late_results_ || evaluation_due || step == options_.steps || wants_tensors(step)) return false;
  return !parts_.applied || !parts_.step.left_out().defined();
}

void Trainer::report(const internal::LaunchedStep& launched, const StepResult& update) {
  result_.loss = update.loss;
  meter_.step(launched.samples);
  StepEvent event{.step = launched.step,
                  .epoch = launched.epoch,
                  .samples = samples_until(parts_.data, launched.cursor),
                  .loss = update.loss,
                  .learning_rate = launched.learning_rate,
                  .images_per_s = meter_.per_second(),
                  .skipped = update.skipped,
                  .took = meter_.worked() - told_work_,
                  .last_step = options_.steps};
  const std::int64_t updates = parts_.data.updates_per_epoch();
  event.epochs = options_.steps / updates + (options_.steps % updates != 0 ? 1 : 0);
  // As doubles: a run without an end has the largest number of steps.
  event.time_left = meter_.time_left(static_cast<double>(options_.steps - event.step) *
                                     static_cast<double>(launched.samples));
  if (const Durable durable = parts_.checkpointer.last_durable(); durable.step >= 0) {
    event.durable_step = durable.step;
    event.durable_age = clock_.now() - durable.when;
    if (durable.step != durable_told_) {
      // A save's figures arrive shortly after its acknowledgement; then the next step reports it.
      const std::optional<SavedEvent> saved = newest_save();
      if (saved && saved->step >= durable.step) {
        event.saved = saved;
        durable_told_ = saved->step;
      }
    }
  }
  for (MetricSink* sink : parts_.sinks) sink->step(event);
  told_work_ = meter_.worked();
  if (wants_tensors(event.step)) report_tensors(event.step);
}

bool Trainer::wants_tensors(std::int64_t step) const {
  return options_.histograms_every > 0 && step % options_.histograms_every == 0;
}

void Trainer::report_tensors(std::int64_t step) {
  const auto tell = [&](const std::string& name, const at::Tensor& tensor) {
    const HistogramEvent event = histogram_of(name, tensor, step);
    for (MetricSink* sink : parts_.sinks) sink->histogram(event);
  };
  try {
    for (const auto& item : parts_.model.named_parameters()) {
      tell("weights/" + item.key(), item.value());
      if (item.value().grad().defined()) tell("gradients/" + item.key(), item.value().grad());
    }
  } catch (const std::exception& error) {  // a device without room, for one
    log_warning("no more histograms (training goes on): {}", what_of(error));
    options_.histograms_every = 0;
  }
}

std::optional<SavedEvent> Trainer::newest_save() const {
  return newest_save_of(parts_.checkpointer.figures());
}

bool Trainer::evaluate() {
  meter_.pause();
  const std::optional<EvaluationEvent> event = test();
  if (!event) return false;
  evaluated_ = event->step;
  result_.test_accuracy = event->accuracy;
  for (MetricSink* sink : parts_.sinks) sink->evaluation(*event);
  parts_.checkpointer.metric("test_accuracy", event->accuracy);
  parts_.checkpointer.metric("test_loss", event->loss);
  meter_.begin();
  return true;
}

std::optional<EvaluationEvent> Trainer::test() {
  Checkpointer::EvaluationScope scope(parts_.checkpointer);
  const EvaluationMode mode(parts_.model);
  const at::NoGradGuard no_grad;
  const SteadyTime start = clock_.now();
  log_debug("evaluating after step {}", parts_.state.step());

  Totals all;
  parts_.test_data->restart();
  if (!(group_ != nullptr ? add_scores_of_all(all) : add_scores(all))) {
    scope.cut_short();
    return std::nullopt;
  }
  if (all.samples == 0) throw UsageError("the test data is empty");
  return EvaluationEvent{.step = parts_.state.step(),
                         .epoch = std::max<std::int64_t>(parts_.state.cursor().epoch, 0),
                         .accuracy = all.score.correct / all.samples,
                         .loss = all.score.loss_sum / all.samples,
                         .samples = static_cast<std::int64_t>(all.samples),
                         .time = clock_.now() - start};
}

bool Trainer::add_scores(Totals& totals) {
  while (const std::optional<Batch> batch = parts_.test_data->next()) {
    if (parts_.checkpointer.tick()) return false;
    const Score score = parts_.score(*batch);
    totals.score.correct += score.correct;
    totals.score.loss_sum += score.loss_sum;
    totals.samples += static_cast<double>(batch->inputs.size(0));
  }
  return true;
}

// In each round every rank evaluates a batch, if it has one, while the sum of the previous round is under
// way. All ranks read the same sums, so they leave in the same round, and no sum is pending.
bool Trainer::add_scores_of_all(Totals& totals) {
  enum { kCorrect, kLoss, kSamples, kDone, kStopped, kCount };
  parts_.step.parallel()->before_forward();  // rank 0's running means, as in a checkpoint
  SumOverRanks sum(*group_, "an evaluation");
  for (bool more = true;;) {
    const std::optional<Batch> batch = more ? parts_.test_data->next() : std::nullopt;
    more = batch.has_value();
    const bool stopped = parts_.checkpointer.tick() || !parts_.checkpointer.stop_reason().empty();
    Score score;
    if (more && !stopped) score = parts_.score(*batch);
    if (sum.pending()) {
      const at::Tensor all = sum.wait();
      const auto* const values = all.const_data_ptr<double>();
      if (values[kStopped] > 0) return false;
      totals.score.correct += values[kCorrect];
      totals.score.loss_sum += values[kLoss];
      totals.samples += values[kSamples];
      if (values[kDone] == group_->world_size()) return true;
    }
    // Not float32, which counts samples only to 2^24.
    const at::Tensor own = at::zeros({kCount}, at::kDouble);
    auto* const values = own.data_ptr<double>();
    values[kCorrect] = score.correct;
    values[kLoss] = score.loss_sum;
    values[kSamples] = more ? static_cast<double>(batch->inputs.size(0)) : 0;
    values[kDone] = more ? 0 : 1;
    values[kStopped] = stopped ? 1 : 0;
    sum.begin(own);
  }
}

int Trainer::finish() {
  // After a stop the sinks may not have heard of the newest update yet.
  late_->read();
  for (MetricSink* sink : parts_.sinks) sink->finish();
  Checkpointer& checkpointer = parts_.checkpointer;
  // Read before finish(): a later signal changes the exit code, but a run that ended with 0 stays complete.
  bool stopped = !checkpointer.stop_reason().empty();
  result_.exit_code = checkpointer.finish();
  if (group_ != nullptr)
    stopped = !checkpointer.stop_reason().empty();  // finish() brings the other ranks'
                                                    // stops
  for (MetricSink* sink : parts_.sinks) {
    sink->end({.step = parts_.state.step(), .exit_code = result_.exit_code, .at = clock_.wall_now()});
  }
  result_.step = parts_.state.step();
  result_.training = meter_.worked();
  const Cursor cursor = parts_.state.cursor();
  result_.epochs = cursor.epoch + (cursor.samples >= parts_.data.size() ? 1 : 0);
  result_.reason = checkpointer.stop_reason();
  const auto ended_with = [&](ExitCode code) { return result_.exit_code == static_cast<int>(code); };
  if (ended_with(ExitCode::io_failed) || ended_with(ExitCode::superseded)) return result_.exit_code;

  // After finish(): near a deadline the commit comes first.
  result_.state = to_hex(checkpointer.state_digest());
  const Durable durable = checkpointer.last_durable();
  // A checkpoint of the step where this process began was not added by it.
  if (durable.step == result_.step && durable.step > first_step_) result_.checkpoint = durable.checkpoint;
  const bool complete = ended_with(ExitCode::complete) && !stopped;
  result_.outcome = complete ? TrainerResult::Outcome::complete : TrainerResult::Outcome::interrupted;
  return result_.exit_code;
}

std::string to_line(const TrainerResult& result) {
  const std::string step = " step=" + std::to_string(result.step);
  const std::string state = " state=" + result.state;
  if (result.outcome == TrainerResult::Outcome::complete) {
    const std::string accuracy = result.test_accuracy ? shortest_decimal(*result.test_accuracy) : "none";
    return "complete" + step + " epoch=" + std::to_string(result.epochs) +
           " loss=" + shortest_decimal(result.loss) + " test_accuracy=" + accuracy + state;
  }
  if (result.outcome == TrainerResult::Outcome::interrupted) {
    return "interrupted" + step + state +
           " checkpoint=" + (result.checkpoint.empty() ? "none" : result.checkpoint) +
           " reason=" + one_word(result.reason);
  }
  return {};
}

}}  // namespace holdfast::v0_2
