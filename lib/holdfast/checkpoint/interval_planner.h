// How much time to leave between two saves: what a save costs the training, against what a machine that
// vanishes without a word would take with it.
//
// With a constant hazard h (one interruption every 1/h) and a cost C of a save to the training, the loss per
// unit of time is C/T + h·T/2, least at T = √(2·C/h) (Young 1974; Daly 2006 adds terms that matter only
// when C is not small against 1/h). Spot machines have no constant hazard: their lives are heavy-tailed. In
// public traces of preempted V100s the median life is 39 min, a quarter ends within 10 min, and the mean is
// 2 h: whoever has lived long will live on. So the hazard is that of a Weibull distribution at the machine's
// age a, averaged over the interval to come,
//
//   h(a, T) = (H(a + T) − H(a)) / T   with H(t) = (t/scale)^shape,     T = √(2·C / h(a, T))
//
// and T its fixed point. shape and scale are the likeliest for the lives seen in the ledgers (lives that
// went on, or were ended by us, count as "at least so long") together with eight lives that stand for those
// traces: after eight of its own, a run knows as much from itself as from them.
//
// T is kept within limits: a save may cost the training at most `stall_budget` of its time (T ≥ C/budget),
// and the volume at most a quarter of its time (T ≥ 4 writes); and T lies between `shortest` and `longest`.
// That a notice comes in time is not counted on: the final commit after one costs nothing of this.
//
// Threads: plain values, pure.
#pragma once

#include <vector>

#include "holdfast/base/clock.h"

namespace holdfast::inline v1 {

struct IntervalLimits {
  double stall_budget = 0.01;  // share of the training time that saves may cost; over 0, at most 1
  Duration shortest = std::chrono::seconds(30);
  Duration longest = std::chrono::minutes(30);
};

// A machine's life as far as it was seen.
struct MachineLife {
  Duration length{};
  bool ended = false;  // the machine went away; false: it lived at least so long
};

// Measured costs of one save.
struct SaveCost {
  Duration stall{};  // what the training loses: waits, and what steps beside the write take longer
  Duration write{};  // staged to durable
};

class LifeModel {
 public:
  LifeModel() : LifeModel(std::vector<MachineLife>{}) {}  // the public traces alone
  // Lives that are not positive are left out.
  explicit LifeModel(const std::vector<MachineLife>& lives);

  double shape() const { return shape_; }
  Duration scale() const;
  // Interruptions per second to expect of a machine of this age, over the time to come. Requires ahead > 0.
  double hazard(Duration age, Duration ahead) const;

 private:
  double shape_ = 1;
  double scale_ = 1;  // seconds
};

Duration plan_interval(const SaveCost& cost, const LifeModel& lives, Duration age,
                       const IntervalLimits& limits);

}  // namespace holdfast::inline v1
