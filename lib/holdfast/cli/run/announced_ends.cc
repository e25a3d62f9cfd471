#include "holdfast/cli/run/announced_ends.h"

#include <algorithm>
#include <map>
#include <string>

namespace holdfast { inline namespace v0_2 {

std::optional<WallTime> machine_ends(const LedgerLife& life) {
  std::map<std::string, WallTime> by_source;
  for (const LedgerNotice& notice : life.notices) {
    // A source that withdrew its notice announces nothing any more.
    if (notice.kind == "withdrawn") by_source.erase(notice.source);
    // The source "deadline" is the run's own time and says nothing about the machine.
    if (notice.kind != "deadline" || !notice.left || notice.source == "deadline") continue;
    const WallTime ends = notice.when + *notice.left;
    const auto [known, fresh] = by_source.emplace(notice.source, ends);
    // The earliest time counts, as in the monitor of a run.
    if (!fresh) known->second = std::min(known->second, ends);
  }
  std::optional<WallTime> earliest;
  for (const auto& [source, ends] : by_source) earliest = earliest ? std::min(*earliest, ends) : ends;
  return earliest;
}

bool own_time_is_over(const LedgerLife& life, bool left, WallTime now) {
  constexpr WallTime kNever = WallTime::max();
  WallTime ends = kNever;
  for (const LedgerNotice& notice : life.notices) {
    const bool own = notice.source == "deadline";
    // A stop for the run's own time settles it. Any other stop means that the attempt did not leave for that
    // time.
    if (notice.kind == "stop") {
      if (own) return true;
      left = false;  // for another reason
    }
    if (own && notice.kind == "withdrawn") ends = kNever;
    if (own && notice.kind == "deadline" && notice.left) ends = notice.when + *notice.left;
  }
  if (!left || ends == kNever || now >= ends + kAliveAfter) return false;
  // It may have left for an earlier end of its machine, which it had not outlived.
  const auto machine = machine_ends(life);
  return !machine || *machine >= ends || (life.last_wall && *life.last_wall >= *machine + kAliveAfter);
}

}}  // namespace holdfast::v0_2
