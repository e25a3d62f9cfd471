// Where the time of a start goes: with HOLDFAST_LOG=debug one line at the end of each phase, up to the second step.
//
//   holdfast: debug: start: model 5231.417206 s, 1204 page faults
//
// The time is the steady clock's, the page faults are the process's up to here. bench_start_up --profile makes a
// table of these lines. Otherwise it costs nothing. Errors: none. Threads: passed() may be called from any.
#pragma once

#include "holdfast/metrics/sink.h"

namespace example {

class StartLog final : public holdfast::MetricSink {
 public:
  StartLog();
  bool on() const { return on_; }
  void passed(const char* phase) const;

  void begin(const holdfast::BeginEvent& event) override;
  void step(const holdfast::StepEvent& event) override;

 private:
  bool on_;
  int steps_ = 0;
};

}  // namespace example
