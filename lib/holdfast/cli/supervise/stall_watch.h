// Detects a training that stands still, from the ledger of the running attempt. Every 10 s its writer records
// the step that training has reached; if training stands still, the writer keeps recording the same step.
//
// These do not count: the time before an attempt's first line and after its last, evaluations in an
// EvaluationScope, pauses before an announced end, and gaps while the writer writes a checkpoint. A process
// that is stopped as a whole records nothing, so it is not detected.
//
//   watch.begin();                        // a new attempt
//   watch.hear(new_lines_of_the_ledger);
//   if (const auto stood = watch.standing(); stood && *stood >= watch.limit()) ...
//
// Errors: none; malformed lines are ignored. Threads: one. It has no clock: all times are the ledger's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/base/clock.h"

namespace holdfast { inline namespace v0_2 {

class StallWatch {
 public:
  static constexpr Duration kLeast = std::chrono::minutes(10);  // a shorter standstill ends no run
  static constexpr int kSteps = 20;                             // factor of the 95th percentile of a step

  // nullopt: 20 times the run's p95 step, but at least ten minutes.
  explicit StallWatch(std::optional<Duration> limit) : limit_(limit) {}

  void begin();
  // Takes lines of the file. A torn last line is kept until its rest arrives.
  void hear(std::string_view text);
  // How long the step has stood still; nullopt: it need not move now.
  std::optional<Duration> standing() const;
  Duration limit() const;
  std::int64_t step() const { return step_; }

 private:
  void hear_line(std::string_view line);
  void restart_at(Duration up);

  const std::optional<Duration> limit_;
  std::vector<Duration> steps_;  // of all attempts, as a ring
  std::size_t next_step_time_ = 0;

  std::string torn_;
  bool counts_ = false;  // between "start" and "end", and outside evaluations and pauses
  std::int64_t step_ = -1;
  Duration last_up_{};   // of the newest "progress"
  Duration moved_up_{};  // when the step last moved, or the count began
  Duration step_up_{};   // start of the time of the next steps
};

}}  // namespace holdfast::v0_2
