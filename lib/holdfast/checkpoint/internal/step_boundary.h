// The newest step boundary: the report of the step before it, and whether memory still holds it.
//
// Errors: arrive() passes on exceptions of the source; memory then holds no boundary. Threads: the training
// thread.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/checkpoint/internal/save_partners.h"

namespace holdfast { inline namespace v1 { namespace internal {

class StepBoundary {
 public:
  StepBoundary(Run& run, const SavePartners& partners) : run_(run), partners_(partners) {}

  // After resume().
  void begin() {
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
  [[gnu::always_inline]] void arrive(const StepReport& report) {
    memory_ = Memory::updating;
    run_.source.advance(report);
    memory_ = Memory::boundary;
    const std::int64_t step = run_.step();
    loss_ = report.loss;
    evaluation_due_ = report.evaluation_due;
    if (!loss_) return;
    run_.losses.push(step, *loss_);
    run_.started.receipt.compare(step, *loss_);
    if (std::isfinite(*loss_) != loss_was_finite_) [[unlikely]] {
      tell_loss();
    }
  }
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

  void tell_loss() noexcept;

  Run& run_;
  const SavePartners& partners_;
  std::optional<double> loss_;
  bool evaluation_due_ = false;
  bool loss_was_finite_ = true;  // the newest reported loss
  bool announced_ = false;       // before_update() was called since the last after_step()
  Memory memory_ = Memory::boundary;
};

}}}  // namespace holdfast::v1::internal
