// The newest step boundary: the report of the step before it, and whether memory still holds it.
//
// A report may come late (StepReport::late). Whatever looks at the boundary's loss or at the state calls
// settle() first, so that no checkpoint, stop or evaluation sees a result that is missing.
//
// Errors: arrive() passes on exceptions of the source, and throws UsageError for a step that does not follow
// the one before; memory then holds no boundary. Those of LateReport::read() leave the report pending.
// Threads: the training thread.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>

#include "holdfast/checkpoint/internal/run.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class StepBoundary {
 public:
  // `leads`: this rank logs for all.
  StepBoundary(Run& run, bool leads) : run_(run), leads_(leads) {}

  // After resume().
  void begin() {
    at_ = run_.step();
    loss_ = run_.started.loss;
    evaluation_due_ = run_.started.resumed.evaluation_due;
  }
  // before_update()
  void update_begins() {
    announced_ = true;
    memory_ = Memory::updating;
  }
  bool update_announced() const { return announced_; }
  // after_step() begins …
  [[gnu::always_inline]] Position arrive(const StepReport& report) {
    settle();
    memory_ = Memory::updating;
    const Position now = run_.source.advance(report);
    // A step that comes again would find its checkpoint's name taken, and its state would never be written.
    if (now.step <= at_) [[unlikely]] {
      refuse_to_go_back();
    }
    at_ = now.step;
    memory_ = Memory::boundary;
    evaluation_due_ = report.evaluation_due;
    if (report.late) [[unlikely]] {
      expect(report);
    } else {
      learn(report.loss);
    }
    return now;
  }
  // Reads a result that is still missing.
  void settle() {
    if (late_) [[unlikely]] {
      read_late();
    }
  }
  // Requires settle().
  std::optional<double> loss() const { return loss_; }
  // … and ends.
  void leave() { announced_ = false; }

  // An evaluation of this boundary is due, or must be repeated.
  void owe_evaluation(bool so) { evaluation_due_ = so; }
  // Memory may have changed: until the next step only an image, if there is one, holds the boundary.
  void disturb() {
    if (memory_ == Memory::boundary) memory_ = Memory::disturbed;
  }
  bool updating() const { return memory_ == Memory::updating; }
  bool disturbed() const { return memory_ == Memory::disturbed; }

  // Writes this boundary's values into the record.
  void note_in(RunRecord& record) const;

 private:
  // updating: before_update() or after_step() has begun, and the next step boundary is not reached.
  enum class Memory { boundary, updating, disturbed };

  [[gnu::always_inline]] void learn(std::optional<double> loss) {
    loss_ = loss;
    if (!loss) return;
    run_.losses.push(at_, *loss);
    run_.started.receipt.compare(at_, *loss);
    if (std::isfinite(*loss) != loss_was_finite_) [[unlikely]] {
      tell_loss();
    }
  }
  void expect(const StepReport& report);
  void read_late();
  void tell_loss() noexcept;
  [[noreturn]] void refuse_to_go_back() const;

  Run& run_;
  const bool leads_;
  std::int64_t at_ = 0;  // the boundary's step
  std::optional<double> loss_;
  std::shared_ptr<LateReport> late_;  // not null: loss_ is missing
  bool evaluation_due_ = false;
  bool loss_was_finite_ = true;  // the newest reported loss
  bool announced_ = false;       // before_update() was called since the last after_step()
  Memory memory_ = Memory::boundary;
};

}}}  // namespace holdfast::v0_2::internal
