#include "holdfast/planning/interval_planner.h"

#include <algorithm>
#include <cmath>

#include "holdfast/base/seconds.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// A V100 on the spot market: eight lives of two hours weigh as much as eight lives of one's own.
constexpr int kTracedLives = 8;
constexpr double kTracedMean = 2.0 * 3600;  // seconds

Duration from_seconds(double time) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(time));
}

}  // namespace

double hazard_of(const std::vector<MachineLife>& lives) {
  double ended = kTracedLives;
  double lived = kTracedLives * kTracedMean;
  for (const MachineLife& life : lives) {
    // Clocks that were set back give lives without length.
    if (life.length <= Duration::zero()) continue;
    lived += in_seconds(life.length);
    if (life.ended) ended += 1;
  }
  return ended / lived;
}

Duration plan_interval(const SaveCost& cost, double hazard, const IntervalLimits& limits) {
  const double stall = std::max(in_seconds(cost.stall), 0.0);
  // The stall may take its share of the training, and the write a quarter of the volume's time.
  const Duration least =
      std::max({limits.shortest, from_seconds(stall / limits.stall_budget), 4 * cost.write});
  const Duration most = std::max(limits.longest, least);
  // Young (1974): the sum of saving (C/T) and of work lost (h·T/2) is least at T = sqrt(2·C/h).
  const double best = std::sqrt(2 * stall / hazard);
  // Clamped as numbers first, because a hazard of almost 0 gives a time that no Duration holds.
  return std::clamp(from_seconds(std::min(best, in_seconds(most))), least, most);
}

}}  // namespace holdfast::v0_2
