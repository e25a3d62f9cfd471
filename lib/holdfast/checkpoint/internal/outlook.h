// Decides whether the run must stop, and what it does before an announced end. No other class decides that.
// decide() answers at a step boundary, and its Plan goes to all parts that act there. Between boundaries
// there is nothing to plan: must_stop() and should_stop() end loops, out_of_time() and the like limit waits.
//
//   Outlook outlook(options.notices, monitor, costs, clock);
//   const Plan plan = outlook.decide({.step = 1200, .durable = 1100, .standing = {.covered = false}});
//   if (plan.move == Move::stop) outlook.leave();   // for good: no withdrawal changes it
//
// Errors: none. Without memory for a plan the run trains on, and the next step asks again.
// Threads: the training thread; fits() and standby_is_ready() any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "holdfast/base/clock.h"
#include "holdfast/checkpoint/checkpointer_options.h"
#include "holdfast/checkpoint/internal/announced.h"
#include "holdfast/checkpoint/internal/late_warnings.h"
#include "holdfast/interruption/monitor.h"
#include "holdfast/planning/cost_model.h"
#include "holdfast/planning/deadline_planner.h"
#include "holdfast/writing/async_writer.h"
#include "holdfast/writing/save_handle_shared.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// A save that has begun; null: none.
using BegunSave = std::shared_ptr<SaveHandle::Shared>;

class Outlook {
 public:
  // All references outlive this object.
  Outlook(const NoticeOptions& options, Monitor& monitor, const CostModel& costs, const Clock& clock)
      : options_(options), costs_(costs), clock_(clock), announced_(monitor) {}

  // A standby waits to go on with the run: when an end is announced, the run hands over at once, whatever the
  // program's policy. Any thread.
  void standby_is_ready(bool so) noexcept { standby_ready_ = so; }
  // From the claim on: a writer that was superseded stops the run.
  void follow(const AsyncWriter& writer) { writer_ = &writer; }
  // For several ranks: a decision takes one more step and, at a save, `longest`.
  void add_agreement(Duration longest);

  // The ends and stops that it decides by. The votes of other ranks add to them.
  Announced& announced() { return announced_; }

  // At a step boundary: save, stop, pause or train on.
  Plan decide(const Reached& at) noexcept;

  // Between boundaries. Told to stop, or superseded: a withdrawn notice does not change that.
  bool must_stop() const noexcept;
  // Between boundaries. The same, or a deadline is announced and OnNotice::exit applies.
  bool should_stop() noexcept;
  // The program leaves its loop: latches the stop.
  void leave() noexcept;
  bool leaving() const { return stop_.leaving; }
  // Why the run stops; empty while it does not.
  std::string reason() const noexcept;

  // A save that began after the notice was seen: its insurance.
  void insured_by(const BegunSave& save);
  // As insured_by(), in an evaluation of several ranks: the save may begin before votes report the notice.
  void answered_by(const BegunSave& save);
  // The votes of `step` reported no end.
  void forget_answer(std::int64_t step);

  // The run ended by itself: unless it is told to stop, its last save has no limit.
  void take_time(bool so) { ended_by_itself_ = so; }
  // Limits of waits. A wait that began at `since` has to end.
  bool out_of_time(SteadyTime since) const noexcept;
  // A commit that begins now ends before any named deadline. Any thread.
  bool fits(const Standing& writer) const noexcept;
  // The last save of a run: it does not fit, and the run has not ended by itself.
  bool last_save_too_late(const Standing& writer) const noexcept;
  // What people are told once for each notice.
  LateWarnings& warnings() { return warnings_; }

  Costs costs() const noexcept;

 private:
  struct StopState {
    bool leaving = false;  // the program was told to stop
    std::string reason;
  };
  // The notice for which the planner plans.
  struct ActiveNotice {
    std::string source;
    SteadyTime seen{};
    OnNotice policy = OnNotice::train_on;
    Duration asleep{};    // Clock::asleep() when it was first looked at
    BegunSave insurance;  // the newest save that began since
  };

  Plan plan(const Reached& at);
  void pursue(const Notice& notice);
  // What to do about the active notice.
  OnNotice policy() const noexcept { return standby_ready_ ? OnNotice::exit : active_->policy; }
  const NoticeOptions& options_;
  const CostModel& costs_;
  const Clock& clock_;
  Announced announced_;
  const AsyncWriter* writer_ = nullptr;  // null until the claim

  std::atomic<bool> standby_ready_{false};
  StopState stop_;
  std::optional<ActiveNotice> active_;
  BegunSave answer_;                   // for a notice that the votes will report
  std::optional<Duration> agreement_;  // none: this rank decides alone
  bool ended_by_itself_ = false;
  LateWarnings warnings_{announced_, costs_, clock_};
};

}}}  // namespace holdfast::v0_2::internal
