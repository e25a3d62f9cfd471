#include "holdfast/checkpoint/interval_planner.h"

#include <algorithm>
#include <cmath>

namespace holdfast::inline v1 {
namespace {

double seconds(Duration time) { return std::chrono::duration<double>(time).count(); }
Duration from_seconds(double time) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(time));
}

struct Life {
  double length;  // seconds
  bool ended;
};

// Weibull with a median of 39 min; 26 % end within 10 min, the mean is 1.8 h.
constexpr double kPriorShape = 0.6;
constexpr double kPriorScale = 72.0 * 60;
constexpr int kPriorLives = 8;

constexpr double kLeastShape = 0.2;
constexpr double kMostShape = 3;

// Zero at the likeliest shape, rising with it (the scale is eliminated).
double slope(const std::vector<Life>& lives, double shape) {
  double weights = 0;
  double weighted = 0;
  double logs = 0;
  double ended = 0;
  for (const Life& life : lives) {
    const double log = std::log(life.length);
    const double weight = std::pow(life.length / kPriorScale, shape);
    weights += weight;
    weighted += weight * log;
    if (!life.ended) continue;
    logs += log;
    ended += 1;
  }
  return weighted / weights - 1 / shape - logs / ended;
}

}  // namespace

LifeModel::LifeModel(const std::vector<MachineLife>& lives) {
  std::vector<Life> all;
  for (int i = 0; i < kPriorLives; ++i) {
    const double share = (i + 0.5) / kPriorLives;
    all.push_back({kPriorScale * std::pow(-std::log1p(-share), 1 / kPriorShape), true});
  }
  for (const MachineLife& life : lives) {
    if (life.length > Duration::zero()) all.push_back({seconds(life.length), life.ended});
  }
  double low = kLeastShape;
  double high = kMostShape;
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    (slope(all, middle) > 0 ? high : low) = middle;
  }
  shape_ = (low + high) / 2;
  double weights = 0;
  double ended = 0;
  for (const Life& life : all) {
    weights += std::pow(life.length / kPriorScale, shape_);
    if (life.ended) ended += 1;
  }
  scale_ = kPriorScale * std::pow(weights / ended, 1 / shape_);
}

Duration LifeModel::scale() const { return from_seconds(scale_); }

double LifeModel::hazard(Duration age, Duration ahead) const {
  const double from = std::max(seconds(age), 0.0) / scale_;
  const double time = seconds(ahead);
  return (std::pow(from + time / scale_, shape_) - std::pow(from, shape_)) / time;
}

Duration plan_interval(const SaveCost& cost, const LifeModel& lives, Duration age,
                       const IntervalLimits& limits) {
  const Duration least =
      std::max({limits.shortest, from_seconds(seconds(cost.stall) / limits.stall_budget), 4 * cost.write});
  const Duration most = std::max(limits.longest, least);
  Duration interval = least;
  // Converges: a longer interval changes its own hazard by less than its root.
  for (int i = 0; i < 30; ++i) {
    const double best = std::sqrt(2 * std::max(seconds(cost.stall), 0.0) / lives.hazard(age, interval));
    interval = std::clamp(from_seconds(std::min(best, seconds(most))), least, most);
  }
  return interval;
}

}  // namespace holdfast::inline v1
