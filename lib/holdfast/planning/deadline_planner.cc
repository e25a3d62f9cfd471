#include "holdfast/planning/deadline_planner.h"

#include <algorithm>

namespace holdfast { inline namespace v0_2 {
namespace {

// Known cost of one commit. A write in flight that already takes longer than any measured one is the better
// estimate.
std::optional<Duration> commit_cost(const Costs& costs, const Standing& standing) {
  if (!standing.writing) return costs.commit;
  return std::max(costs.commit.value_or(Duration::zero()), *standing.writing);
}

// True if a commit that begins now ends by the deadline. The write in flight has to end first.
bool fits(SteadyTime now, SteadyTime deadline, const Costs& costs, const Standing& standing) {
  const auto cost = commit_cost(costs, standing);
  // Nothing is known yet. A try costs nothing that is not lost anyway.
  if (!cost) return now < deadline;
  // The rest of the write in flight, as long as a commit of its kind takes.
  const Duration in_flight = standing.writing ? *cost - *standing.writing : Duration::zero();
  return now + in_flight + *cost <= deadline;
}

}  // namespace

Duration reserve(const Costs& costs) noexcept {
  // Half a commit more than the 95th percentile, because this commit must not come too late.
  return costs.commit.value_or(Duration::zero()) * 3 / 2 + costs.step + costs.agreement + kSpareTime;
}

Plan plan_for_deadline(SteadyTime now, const Deadline& deadline, const Costs& costs, const Standing& standing,
                       OnNotice policy) noexcept {
  if (now >= deadline.at + kAliveAfter) return {.move = Move::go_on};
  // Nobody named a guessed deadline, so it must not forbid a commit that may well end in time.
  const bool possible = deadline.guessed || fits(now, deadline.at, costs, standing);
  const Plan no_commit{.move = Move::wait, .too_late = !standing.covered && !possible};
  // The machine may sleep in the middle of a step and wake up later, so training continues after the commit.
  if (deadline.hibernates) {
    // Nothing has changed since the commit, so another would only wake the disk.
    if (standing.insured || standing.covered) return {.move = Move::train, .room = possible};
    return {.move = possible ? Move::commit : Move::train, .too_late = !possible, .room = possible};
  }
  switch (policy) {
    case OnNotice::exit:
      return {.move = Move::stop, .too_late = no_commit.too_late};
    case OnNotice::wait:
      // The state is on the volume, or cannot get there any more: no commit is left to begin.
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
    // First a commit as insurance: the deadline may come early, and machines often end before it.
    return {.move = possible ? Move::commit : Move::train, .too_late = !possible, .room = room};
  }
  if (standing.covered) return {.move = Move::wait};
  // A step costs nothing here. When the write in flight has ended, there may be time for a commit after all.
  if (!possible) return {.move = Move::train, .too_late = true, .room = false};
  return {.move = Move::last_commit};
}

Plan plan_for_stop(SteadyTime now, std::optional<SteadyTime> deadline, const Costs& costs,
                   const Standing& standing) noexcept {
  // A deadline that has passed forbids nothing: the machine still lives, so try.
  const bool possible = !deadline || *deadline <= now || fits(now, *deadline, costs, standing);
  return {.move = Move::stop, .too_late = !standing.covered && !possible};
}

}}  // namespace holdfast::v0_2
