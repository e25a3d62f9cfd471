// Compares the training steps beside a copy or a write with those without one: StepsBeside of save_figures.h,
// window by window. Costs a step an addition and a comparison or two.
//
// Threads: the training thread.
#pragma once

#include <cstdint>
#include <optional>

#include "holdfast/base/clock.h"

namespace holdfast::inline v1::internal {

class StepTimes {
 public:
  static constexpr std::int64_t kFewestSteps = 5;  // to compare a window with

  // One step, from boundary to boundary, without what was waited in it. Of the first step after a window:
  // what that window took longer than as many steps without a write, where that can be told.
  std::optional<Duration> step(Duration took, bool beside) {
    if (left_out_ > 0) [[unlikely]] {
      --left_out_;
      return std::nullopt;
    }
    std::optional<Duration> longer;
    if (beside != beside_) [[unlikely]] {
      longer = turn(beside);
    }
    ++now_.steps;
    now_.time += took;
    return longer;
  }
  // The step under way is no measure: an evaluation runs in it.
  void leave_out() {
    if (left_out_ == 0) left_out_ = 1;
  }

 private:
  struct Period {
    std::int64_t steps = 0;
    Duration time{};
  };
  std::optional<Duration> turn(bool beside);

  std::int64_t left_out_ = kFewestSteps;  // the first ones warm up
  bool beside_ = false;
  Period now_;
  Period without_;  // the newest period without a write that is long enough
};

}  // namespace holdfast::inline v1::internal
