#include "holdfast/checkpoint/internal/step_boundary.h"

#include <string>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

void StepBoundary::expect(const StepReport& report) {
  loss_.reset();
  late_ = report.late;
}

void StepBoundary::read_late() {
  const LateReport::Numbers numbers = late_->read();
  late_.reset();
  if (numbers.skipped) run_.source.learn({.skipped = true});
  learn(numbers.loss);
}

// One warning when the loss stops being finite, not one a step, and only on the rank that leads.
void StepBoundary::tell_loss() noexcept {
  const double loss = *loss_;
  loss_was_finite_ = std::isfinite(loss);
  if (loss_was_finite_ || !leads_) return;
  log_warning(
      "the loss of step {} is {}: its checkpoints are recorded as not finite. KeepBest passes over them, and "
      "the newest finite one stays (start again from its step with resume_from to go back to it)",
      run_.step(),
      std::isnan(loss) ? "nan"
      : loss > 0       ? "inf"
                       : "-inf");
}

void StepBoundary::refuse_to_go_back() const {
  throw UsageError("after_step(): the state stands at step " + std::to_string(run_.step()) +
                   ", and stood at step " + std::to_string(at_) +
                   " before: a run goes back only by a new start, with resume_from");
}

void StepBoundary::note_in(RunRecord& record) const {
  record.loss = loss_;
  record.finite = !loss_ || std::isfinite(*loss_);
  record.evaluation_due = evaluation_due_;
  record.time = format_utc(run_.clock.wall_now());
}

}}}  // namespace holdfast::v0_2::internal
