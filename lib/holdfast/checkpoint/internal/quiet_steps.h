// Passes the step boundaries at which there is nothing to decide. What such a step costs is its cache misses,
// because a training step evicts everything; so all that it needs is here or one pointer away.
//
//   quiet.end();                            // a boundary begins that decides, or the program calls
//   quiet.until(step, next_step, next_time) // … and all is decided: nothing falls due before these
//   if (quiet.pass(at)) return {};          // the next boundaries
//
// Why no event is missed: what falls due by itself is bound by that step and time. What other threads bring
// is an event of the driver, and one flag says that there was any. All else changes in calls of the training
// thread, and each of these calls end(). Errors: none. Threads: the training thread.
#pragma once

#include <cstdint>

#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/checkpoint/internal/run_driver.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class QuietSteps {
 public:
  QuietSteps(Run& run, const RunDriver& driver)
      : clock_(run.clock), driver_(driver), time_(run.time), book_(*run.book) {}

  // After `step` nothing falls due before that step and that time.
  void until(std::int64_t step, std::int64_t next_step, SteadyTime next_time, std::uint64_t activity) {
    at_ = step;
    next_time_ = next_time;
    activity_ = activity;
    steps_ = next_step > step ? static_cast<std::uint64_t>(next_step - step) : 0;
  }
  // The next boundary decides.
  void end() { steps_ = 0; }
  // False after end(): pass() would return false.
  bool expected() const { return steps_ > 0; }

  // The training stands at `at`. True: there was nothing to decide, and its time is measured. False:
  // nothing was done.
  [[gnu::always_inline]] bool pass(Position at) {
    // A step before `at_`, where the program went back, is a huge number.
    if (static_cast<std::uint64_t>(at.step - at_) >= steps_) return false;
    if (at.data_end != DataEnd::none) return false;
    const SteadyTime now = clock_.now();
    if (now >= next_time_ || driver_.disturbed()) return false;
    time_.step(now, activity_);
    book_.boundary(at.step);
    return true;
  }

 private:
  std::uint64_t steps_ = 0;  // from at_ on
  std::int64_t at_ = 0;
  SteadyTime next_time_{};
  std::uint64_t activity_ = 0;  // of the writer, which rests
  const Clock& clock_;
  const RunDriver& driver_;
  TrainingTime& time_;
  SaveBook& book_;
};

}}}  // namespace holdfast::v0_2::internal
