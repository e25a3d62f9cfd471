// The events that a training run sends to its sinks. Every sink gets the same ones.
//
// Times `at` are wall time; zero if the sender did not set them, and then "now" is meant.
// Threads: plain values.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "holdfast/base/clock.h"

namespace holdfast { inline namespace v0_2 {

// Training continues after `step`: 0 for a fresh run, otherwise the resumed step.
struct BeginEvent {
  std::int64_t step = 0;
  std::uint64_t attempt = 0;                                        // Checkpointer::attempt(); 0: unknown
  double loss = std::numeric_limits<double>::quiet_NaN();           // of `step`; NaN: unknown
  double learning_rate = std::numeric_limits<double>::quiet_NaN();  // of its update; NaN: unknown
  bool evaluation_due = false;                                      // the evaluation of `step` comes again
  bool branch = false;                                              // Resumed::branch
};

// A save became durable: its cost, and the work that was at risk until then.
struct SavedEvent {
  std::int64_t step = 0;
  std::uint64_t bytes = 0;
  Duration blocked{};  // training waited
  Duration staging{};  // from the step boundary to the last byte copied
  Duration write{};
  Duration commit{};
  std::int64_t risk_steps = 0;
  Duration risk_time{};
};

// One optimizer update.
struct StepEvent {
  std::int64_t step = 0;     // number of updates so far, so the first is 1
  std::int64_t epoch = 0;    // pass over the data that this step belongs to; the first is 0
  std::int64_t samples = 0;  // trained on since the run began, including this step
  double loss = std::numeric_limits<double>::quiet_NaN();
  double learning_rate = 0;
  std::optional<double> accuracy = {};   // 0 to 1, on this step's samples; unset: not measured
  double images_per_s = 0;               // over the meter's window
  bool skipped = false;                  // no update, because the gradients were not finite
  std::optional<SavedEvent> saved = {};  // newest save that became durable since the last step
  Duration took{};                       // since the last step, without evaluations; zero: unknown
  WallTime at{};
  // For people; sinks for machines ignore these.
  std::optional<std::int64_t> last_step = {};  // of the whole run
  std::optional<std::int64_t> epochs = {};     // of the whole run
  std::optional<Duration> time_left = {};
  std::optional<std::int64_t> durable_step = {};  // step of the last acknowledged checkpoint
  Duration durable_age{};                         // time since it was acknowledged
};

// One pass over the test data.
struct EvaluationEvent {
  std::int64_t step = 0;
  std::int64_t epoch = 0;  // pass over the data that it follows; the first is 0
  double accuracy = 0;     // 0 to 1
  double loss = std::numeric_limits<double>::quiet_NaN();
  std::int64_t samples = 0;
  Duration time{};
  WallTime at{};
};

// The finite values of one tensor. counts[i]: those from limits[i-1] to below limits[i]; the last one: to its
// limit.
struct HistogramEvent {
  std::int64_t step = 0;
  std::string name = {};  // such as "gradients/fc.weight"
  double min = 0;
  double max = 0;
  double count = 0;  // finite values
  double sum = 0;
  double sum_of_squares = 0;
  std::vector<double> limits = {};
  std::vector<double> counts = {};
  WallTime at{};
};

struct GpuFigures {
  int index = 0;                  // the driver's number
  std::uint64_t memory_used = 0;  // bytes, of all processes
  std::uint64_t memory_total = 0;
  std::optional<double> utilization = {};  // 0 to 1; unset: the driver does not tell (MIG)
};

// This process, and the GPUs of its machine. Rates are those since the last event.
struct SystemEvent {
  Duration cpu_time{};   // of all threads, since the process began
  double cpu_cores = 0;  // processor time over time, so 2.0 means two cores
  std::uint64_t resident_bytes = 0;
  std::uint64_t read_bytes = 0;     // from devices, since the process began
  std::uint64_t written_bytes = 0;  // to devices, likewise
  double read_bytes_per_s = 0;
  double written_bytes_per_s = 0;
  std::vector<GpuFigures> gpus = {};
  WallTime at{};
};

// The safety of this attempt's work, at a moment.
struct StatusEvent {
  std::int64_t commits = 0;
  std::uint64_t written_bytes = 0;                    // of these commits
  std::map<std::string, std::int64_t> failures = {};  // failed saves by reason
  std::optional<SavedEvent> newest = {};              // of this attempt
  std::int64_t durable_step = -1;                     // also an earlier attempt's; -1: none
  WallTime durable_at{};                              // when it was acknowledged, or resumed from
  Duration risk_time{};                               // work that would be lost now
  double goodput = 0;                                 // 0 to 1
  std::map<std::string, std::int64_t> notices = {};   // interruptions announced, by source
  std::optional<WallTime> deadline = {};              // the machine's announced end
  WallTime at{};
};

// The run has ended, and its last save too.
struct EndEvent {
  std::int64_t step = 0;
  int exit_code = 0;
  WallTime at{};
};

using Event =
    std::variant<BeginEvent, StepEvent, EvaluationEvent, HistogramEvent, SystemEvent, StatusEvent, EndEvent>;

}}  // namespace holdfast::v0_2
