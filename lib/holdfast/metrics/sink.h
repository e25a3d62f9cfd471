// The interface for metrics. A sink never ends a training: it logs the first failure, and drops what it
// cannot write.
//
// Threads: one thread at a time. Given to a Trainer, that is the training thread: the sink then costs
// microseconds a step and never waits for a disk or a network. BackgroundSinks (background.h) calls sinks
// that may wait on a thread of its own.
#pragma once

#include <functional>

#include "holdfast/base/export.h"
#include "holdfast/metrics/event.h"

namespace holdfast { inline namespace v0_2 {

class HOLDFAST_EXPORT MetricSink {
 public:
  virtual ~MetricSink() = default;
  // Called once, after the resume and before the first step or evaluation.
  virtual void begin(const BeginEvent& /*event*/) {}
  virtual void step(const StepEvent& event) = 0;
  virtual void evaluation(const EvaluationEvent& /*event*/) {}
  virtual void histogram(const HistogramEvent& /*event*/) {}
  // Only from BackgroundSinks, as often as BackgroundOptions::system_every says.
  virtual void system(const SystemEvent& /*event*/) {}
  virtual void status(const StatusEvent& /*event*/) {}
  // The loop ends or pauses; no step follows. The last save has yet to come, so this must not wait.
  virtual void finish() {}
  // The last save has ended; no event follows.
  virtual void end(const EndEvent& /*event*/) {}
  // Writes what is still in memory.
  virtual void flush() {}
  // After begin(): a function that returns when the rows of all events so far survive a power cut, for
  // Checkpointer::commit_after(). Any thread may call it, beside the methods above and after this sink's end,
  // so it owns what it uses. It may wait for a disk as long as that takes, and throws IoError. Empty: there
  // is nothing to sync.
  virtual std::function<void()> row_sync() { return {}; }
};

}}  // namespace holdfast::v0_2
