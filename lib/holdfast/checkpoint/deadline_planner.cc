#include "holdfast/checkpoint/deadline_planner.h"

#include <algorithm>

namespace holdfast::inline v1 {
namespace {

// What one commit takes, as far as is known: a write in flight that takes longer than any measured one tells
// more than they do.
std::optional<Duration> commit_cost(const Costs& costs, const Standing& standing) {
  if (!standing.writing) return costs.commit;
  return std::max(costs.commit.value_or(Duration::zero()), *standing.writing);
}

// A commit that begins now is over by then.
bool fits(SteadyTime now, SteadyTime deadline, const Costs& costs, const Standing& standing) {
  const auto cost = commit_cost(costs, standing);
  if (!cost || standing.first) return now < deadline;
  const Duration in_flight = standing.writing ? *cost - *standing.writing : Duration::zero();
  return now + in_flight + *cost <= deadline;
}

}  // namespace

Duration reserve(const Costs& costs) noexcept {
  return costs.commit.value_or(Duration::zero()) * 3 / 2 + costs.step + costs.agreement + kSpareTime;
}

Plan plan_for_deadline(SteadyTime now, const Deadline& deadline, const Costs& costs, const Standing& standing,
                       OnNotice policy) noexcept {
  if (now >= deadline.at + kAliveAfter) return {.move = Move::go_on};
  const bool possible = fits(now, deadline.at, costs, standing);
  const Plan no_commit{.move = Move::wait, .too_late = !standing.covered && !possible};
  if (deadline.hibernates) {
    if (standing.insured || standing.covered) return {.move = Move::train, .room = possible};
    return {.move = possible ? Move::commit : Move::train, .too_late = !possible, .room = possible};
  }
  switch (policy) {
    case OnNotice::exit:
      return {.move = Move::stop, .too_late = no_commit.too_late};
    case OnNotice::wait:
      if (standing.covered || !possible) return no_commit;
      return {.move = Move::last_commit};
    case OnNotice::train_on:
    case OnNotice::callback:
      break;
  }
  Costs known = costs;
  known.commit = commit_cost(costs, standing);
  if (now + reserve(known) < deadline.at) {
    const bool room = now + known.commit.value_or(Duration::zero()) + reserve(known) < deadline.at;
    if (standing.insured || standing.covered) return {.move = Move::train, .room = room};
    return {.move = possible ? Move::commit : Move::train, .too_late = !possible, .room = room};
  }
  if (standing.covered) return {.move = Move::wait};
  // There is nothing to lose by a step, and when the write in flight is over, there may be time after all.
  if (!possible) return {.move = Move::train, .too_late = true, .room = false};
  return {.move = Move::last_commit};
}

Plan plan_for_stop(SteadyTime now, std::optional<SteadyTime> deadline, const Costs& costs,
                   const Standing& standing) noexcept {
  const bool possible = !deadline || *deadline <= now || fits(now, *deadline, costs, standing);
  return {.move = Move::stop, .too_late = !standing.covered && !possible};
}

}  // namespace holdfast::inline v1
