#include "hand_over.h"

namespace holdfast::bench {

Plan plan_for_hand_over(SteadyTime now, const std::optional<Deadline>& deadline, const Costs& costs,
                        const Standing& standing, OnNotice policy, bool standby_ready) noexcept {
  if (standby_ready) {
    const bool named = deadline && !deadline->guessed;
    return plan_for_stop(now, named ? std::optional(deadline->at) : std::nullopt, costs, standing);
  }
  if (!deadline) return {};
  Plan plan = plan_for_deadline(now, *deadline, costs, standing, policy);
  // The end of this attempt is what the standby waits for.
  if (plan.pauses()) plan.move = Move::stop;
  return plan;
}

}  // namespace holdfast::bench
