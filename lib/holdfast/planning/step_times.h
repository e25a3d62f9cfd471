// Compares training steps beside a copy or a write with steps without one: StepsBeside of save_figures.h,
// window by window. Cost a step: one addition and two comparisons.
//
// Errors: none. Threads: the training thread.
#pragma once

#include <cstdint>
#include <optional>

#include "holdfast/base/clock.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class StepTimes {
 public:
  static constexpr std::int64_t kFewestSteps = 5;  // steps that a window is compared with; fewer are noise

  // One step from boundary to boundary, without waits. At the first step after a window it returns how much
  // longer the window took than as many steps without a write. nullopt if there are too few of those.
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
  // Ignores the current step, because an evaluation runs in it.
  void leave_out() {
    if (left_out_ == 0) left_out_ = 1;
  }

 private:
  struct Period {
    std::int64_t steps = 0;
    Duration time{};
  };
  std::optional<Duration> turn(bool beside);

  std::int64_t left_out_ = kFewestSteps;  // the first steps are slower: caches, allocator
  bool beside_ = false;
  Period now_;
  Period without_;  // the newest long enough period without a write
};

}}}  // namespace holdfast::v0_2::internal
