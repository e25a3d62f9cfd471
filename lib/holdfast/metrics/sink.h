// The interface for metrics. A sink never ends a training: it logs the first failure, and drops what it
// cannot write.
//
// Threads: the training thread alone. A sink costs microseconds a step and never waits for a network.
#pragma once

#include "holdfast/metrics/event.h"

namespace holdfast { inline namespace v1 {

class MetricSink {
 public:
  virtual ~MetricSink() = default;
  // Called once, after the resume and before the first step or evaluation.
  virtual void begin(const BeginEvent& /*event*/) {}
  virtual void step(const StepEvent& event) = 0;
  virtual void evaluation(const EvaluationEvent& /*event*/) {}
  // The run ends or pauses; no event follows.
  virtual void finish() {}
};

}}  // namespace holdfast::v1
