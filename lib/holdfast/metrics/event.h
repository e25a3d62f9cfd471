// The events that a training run sends to its sinks.
//
// Threads: plain values.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "holdfast/base/clock.h"

namespace holdfast { inline namespace v1 {

// Training continues after `step`: 0 for a fresh run, otherwise the resumed step.
struct BeginEvent {
  std::int64_t step = 0;
  std::uint64_t attempt = 0;  // Checkpointer::attempt(); 0: unknown
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
};

}}  // namespace holdfast::v1
