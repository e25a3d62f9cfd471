#include "holdfast/planning/deadline_planner.h"

#include <algorithm>

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr Duration kLongestWayHome = std::chrono::minutes(10);

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

// Time until this boundary is home: covered, or by a commit that begins now. Requires a measured time home. A
// copy that has begun is finished before the next one begins.
Duration time_home(const Costs& costs, const Standing& standing) {
  if (standing.covered && !standing.writing) return standing.going_home;
  const Duration cost = commit_cost(costs, standing).value_or(Duration::zero());
  const Duration in_flight = standing.writing ? cost - *standing.writing : Duration::zero();
  const Duration durable = standing.covered ? in_flight : in_flight + cost;
  return std::max(durable, standing.going_home) + *costs.home;
}

}  // namespace

bool is_home_by(SteadyTime deadline, SteadyTime now, const Costs& costs, const Standing& standing) noexcept {
  return !costs.home || now + time_home(costs, standing) <= deadline;
}

Duration reserve(const Costs& costs) noexcept {
  // Half a commit more than the 95th percentile, because this commit must not come too late.
  return costs.commit.value_or(Duration::zero()) * 3 / 2 + costs.step + costs.agreement + kSpareTime;
}

Plan plan_for_deadline(SteadyTime now, const Deadline& deadline, const Costs& costs, const Standing& standing,
                       OnNotice policy) noexcept {
  if (now >= deadline.at + kAliveAfter) return {.move = Move::go_on};
  // Nobody named a guessed deadline, so it must not forbid a commit that may well end in time.
  const bool possible = deadline.guessed || fits(now, deadline.at, costs, standing);
  const bool reaches_home = is_home_by(deadline.at, now, costs, standing);
  const Plan no_commit{
      .move = Move::wait, .too_late = !standing.covered && !possible, .not_home = !reaches_home};
  // The machine may sleep in the middle of a step and wake up later, so training continues after the commit.
  if (deadline.hibernates) {
    // Nothing has changed since the commit, so another would only wake the disk.
    if (standing.insured || standing.covered) return {.move = Move::train, .room = possible};
    return {.move = possible ? Move::commit : Move::train, .too_late = !possible, .room = possible};
  }
  switch (policy) {
    case OnNotice::exit:
      return {.move = Move::stop, .too_late = no_commit.too_late, .not_home = !reaches_home};
    case OnNotice::wait:
      // The state is on the volume, or cannot get there any more: no commit is left to begin.
      if (standing.covered || !possible) return no_commit;
      return {.move = Move::last_commit, .not_home = !reaches_home};
    case OnNotice::train_on:
    case OnNotice::callback:
      break;
  }
  Costs known = costs;
  known.commit = commit_cost(costs, standing);
  const Duration way = costs.home.value_or(Duration::zero());
  // The wait for a longer way would cost more than the work between two copies is worth.
  const Duration home = way > kLongestWayHome ? Duration::zero() : way;
  const Duration least = reserve(known);
  const bool early = now + least + home < deadline.at;
  // If no commit can be home any more, only the time for a commit here is kept.
  if (early || (!reaches_home && now + least < deadline.at)) {
    const Duration kept = early ? least + 2 * home : least;
    const bool room = now + known.commit.value_or(Duration::zero()) + kept < deadline.at;
    if (standing.insured || standing.covered) return {.move = Move::train, .room = room};
    // First a commit as insurance: the deadline may come early, and machines often end before it.
    return {.move = possible ? Move::commit : Move::train, .too_late = !possible, .room = room};
  }
  if (standing.covered) return {.move = Move::wait, .not_home = !reaches_home};
  // A step costs nothing here. When the write in flight has ended, there may be time for a commit after all.
  if (!possible) return {.move = Move::train, .too_late = true, .room = false};
  return {.move = Move::last_commit, .not_home = !reaches_home};
}

Plan without_commit(Plan plan, const Standing& standing, OnNotice policy) noexcept {
  plan.too_late = !standing.covered;
  plan.room = false;
  if (plan.move == Move::commit) plan.move = Move::train;
  if (plan.move == Move::last_commit) plan.move = policy == OnNotice::wait ? Move::wait : Move::train;
  return plan;
}

Plan plan_for_stop(SteadyTime now, std::optional<SteadyTime> deadline, const Costs& costs,
                   const Standing& standing) noexcept {
  // A deadline that has passed forbids nothing: the machine still lives, so try.
  const bool possible = !deadline || *deadline <= now || fits(now, *deadline, costs, standing);
  const bool not_home = deadline && *deadline > now && !is_home_by(*deadline, now, costs, standing);
  return {.move = Move::stop, .too_late = !standing.covered && !possible, .not_home = not_home};
}

}}  // namespace holdfast::v0_2
