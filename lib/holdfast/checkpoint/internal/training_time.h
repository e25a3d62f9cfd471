// Measures where the training's time goes: steps, waits for saves, and the rest. Feeds the cost model and the
// run's figures. Cost at a step: a few additions; the caller reads the clock.
//
// Errors: none. Threads: the training thread.
#pragma once

#include <cstdint>
#include <utility>

#include "holdfast/base/clock.h"
#include "holdfast/planning/cost_model.h"
#include "holdfast/planning/step_times.h"
#include "holdfast/writing/save_book.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class TrainingTime {
 public:
  TrainingTime(const Clock& clock, CostModel& costs, SaveBook& book)
      : clock_(clock), costs_(costs), book_(book) {}

  void begin() { boundary_ = clock_.now(); }
  // The training stands at the next step boundary. `activity` of the writer: odd while it writes, and another
  // number after each write.
  void step(SteadyTime now, std::uint64_t activity) {
    const bool beside = activity != last_activity_ || activity % 2 != 0;
    const Duration took = now - boundary_ - std::exchange(waited_, Duration::zero());
    if (no_measure_) [[unlikely]] {
      no_measure_ = false;
    } else {
      costs_.stepped(took);
    }
    if (const auto longer = times_.step(took, beside)) [[unlikely]] {
      book_.window(*longer);
    }
    last_activity_ = activity;
    boundary_ = now;
  }
  // This step contains something else, such as an evaluation, so its time is not a step time.
  void leave_step_out() {
    times_.leave_out();
    no_measure_ = true;
  }
  // When the training stood at the last step boundary.
  SteadyTime boundary() const { return boundary_; }

  // Measures how long the training thread waits for saves inside one call; calls nest.
  class Waiting {
   public:
    explicit Waiting(TrainingTime& time) : time_(time), began_(time.clock_.now()) { ++time_.calls_; }
    ~Waiting() {
      if (--time_.calls_ > 0) return;
      const Duration waited = so_far();
      time_.waited_ += waited;
      time_.book_.blocked(waited);
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    SteadyTime began() const { return began_; }
    Duration so_far() const { return time_.clock_.now() - began_; }

   private:
    TrainingTime& time_;
    const SteadyTime began_;
  };

  // The time of a pause counts neither as step nor as save.
  class Pause {
   public:
    explicit Pause(TrainingTime& time) : time_(time), before_(time.waited_), began_(time.clock_.now()) {}
    ~Pause() { time_.waited_ = before_ + so_far(); }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;
    SteadyTime began() const { return began_; }
    Duration so_far() const { return time_.clock_.now() - began_; }

   private:
    TrainingTime& time_;
    const Duration before_;
    const SteadyTime began_;
  };

 private:
  const Clock& clock_;
  CostModel& costs_;
  SaveBook& book_;
  StepTimes times_;
  SteadyTime boundary_{};
  Duration waited_{};  // since then, for saves
  int calls_ = 0;      // inside which a Waiting measures
  std::uint64_t last_activity_ = 0;
  bool no_measure_ = true;  // of a step; the first one is none
};

}}}  // namespace holdfast::v0_2::internal
