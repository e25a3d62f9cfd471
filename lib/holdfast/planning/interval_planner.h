// How long to wait between two saves: the cost of a save to training, against the work that a machine lost
// without notice would destroy.
//
// With hazard h (interruptions per second) and cost C of a save, the best interval is T = √(2·C/h) (Young
// 1974). docs/design.md#the-save-interval has the data behind h, and the limits.
//
//   Duration next = plan_interval({.stall = 20ms, .write = 2s}, hazard_of(lives), {});
//
// The plan ignores notices: a machine may end without one, and the commit after a notice is not part of C.
// Errors: none. Threads: pure functions.
#pragma once

#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

struct IntervalLimits {
  double stall_budget = 0.005;  // largest share of training time for saves; over 0, at most 1
  Duration shortest = std::chrono::seconds(10);  // shorter intervals save little work and load the volume
  Duration longest = std::chrono::minutes(30);   // bounds the loss if the hazard is wrong
};

// A machine's lifetime as far as it was observed.
struct MachineLife {
  Duration length{};
  bool ended = false;  // true: the machine was taken away; false: it lived at least this long
};

// Measured costs of one save.
struct SaveCost {
  Duration stall{};  // what training loses: waits, and the slowdown of steps beside the write
  Duration write{};  // from staged to durable
};

// Interruptions per second: ended lives over seconds lived, of `lives` and of eight ended lives of two hours.
// Those stand for public traces; eight ended lives of the run's own weigh as much. Ignores lives of zero or
// negative length.
HOLDFAST_EXPORT double hazard_of(const std::vector<MachineLife>& lives);

// Requires hazard > 0.
HOLDFAST_EXPORT Duration plan_interval(const SaveCost& cost, double hazard, const IntervalLimits& limits);

}}  // namespace holdfast::v0_2
