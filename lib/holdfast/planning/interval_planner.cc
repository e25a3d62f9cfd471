#include "holdfast/planning/interval_planner.h"

#include <algorithm>
#include <cmath>

#include "holdfast/base/seconds.h"

namespace holdfast { inline namespace v0_2 {
namespace {

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
    if (life.length <= Duration::zero()) continue;
    lived += in_seconds(life.length);
    if (life.ended) ended += 1;
  }
  return ended / lived;
}

Duration plan_interval(const SaveCost& cost, double hazard, const IntervalLimits& limits) {
  const double stall = std::max(in_seconds(cost.stall), 0.0);
  const Duration least =
      std::max({limits.shortest, from_seconds(stall / limits.stall_budget), 4 * cost.write});
  const Duration most = std::max(limits.longest, least);
  const double best = std::sqrt(2 * stall / hazard);
  return std::clamp(from_seconds(std::min(best, in_seconds(most))), least, most);
}

}}  // namespace holdfast::v0_2
