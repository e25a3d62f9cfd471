// Where metrics go. A sink never ends a training: what it cannot write it says once and drops.
//
// Threads: one thread, the training thread; a sink costs microseconds a step and never waits for a network.
#pragma once

#include "holdfast/metrics/event.h"

namespace holdfast::inline v1 {

class MetricSink {
 public:
  virtual ~MetricSink() = default;
  virtual void step(const StepEvent& event) = 0;
  virtual void evaluation(const EvaluationEvent& /*event*/) {}
  // The run ends or pauses; nothing more is coming.
  virtual void finish() {}
};

}  // namespace holdfast::inline v1
