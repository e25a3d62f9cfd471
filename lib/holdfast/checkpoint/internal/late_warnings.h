// Tells people, once for each notice, what cannot be done before an announced end: no time for a save, or a
// save that cannot be home in time.
//
// Errors: none; without memory the text is shorter. Threads: the training thread.
#pragma once

#include <cstdint>
#include <optional>

#include "holdfast/base/clock.h"
#include "holdfast/checkpoint/internal/announced.h"
#include "holdfast/planning/cost_model.h"
#include "holdfast/planning/deadline_planner.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// The newest step boundary. Outlook sets Standing::insured itself.
struct Reached {
  std::int64_t step = 0;
  std::int64_t durable = -1;  // the newest durable step; −1: none
  // The newest step that is home; −1: none. nullopt: there is no mirror.
  std::optional<std::int64_t> home = {};
  Standing standing = {};
};

class LateWarnings {
 public:
  // All references outlive this object.
  LateWarnings(const Announced& announced, const CostModel& costs, const Clock& clock)
      : announced_(announced), costs_(costs), clock_(clock) {}

  // There is no time for a save of this step.
  void too_late(const Reached& at) noexcept;
  // A save of this step was asked for, and if `plan` says so, only the last one has time.
  void no_room(std::int64_t step, const Plan& plan) noexcept;
  // This step will not be home in time.
  void not_home(const Reached& at) noexcept;
  // A new notice may warn again.
  void again() noexcept { told_late_ = told_not_home_ = told_no_room_ = false; }

 private:
  const Announced& announced_;
  const CostModel& costs_;
  const Clock& clock_;
  bool told_late_ = false;
  bool told_not_home_ = false;
  bool told_no_room_ = false;
};

}}}  // namespace holdfast::v0_2::internal
