// What a training run tells its sinks.
//
// Threads: plain values.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "holdfast/base/clock.h"

namespace holdfast::inline v1 {

// A save that became durable: what it cost, and the work that was at risk until then.
struct SavedEvent {
  std::int64_t step = 0;
  std::uint64_t bytes = 0;
  Duration blocked{};  // the training waited
  Duration staging{};  // from the step boundary to the last byte copied
  Duration write{};
  Duration commit{};
  std::int64_t risk_steps = 0;
  Duration risk_time{};
};

// One optimizer update.
struct StepEvent {
  std::int64_t step = 0;   // counted from 1: the number of updates made so far
  std::int64_t epoch = 0;  // counted from 0: the pass over the data that this step belongs to
  double loss = std::numeric_limits<double>::quiet_NaN();
  double learning_rate = 0;
  double images_per_s = 0;               // over the meter's window
  bool skipped = false;                  // the update was left out: its gradients were not finite
  std::optional<SavedEvent> saved = {};  // the newest that became durable since the last step
  // For people; sinks that write for machines leave these out.
  std::optional<std::int64_t> last_step = {};  // of the whole run
  std::optional<std::int64_t> epochs = {};     // of the whole run
  std::optional<Duration> time_left = {};
  std::optional<std::int64_t> durable_step = {};  // of the last acknowledged checkpoint
  Duration durable_age{};                         // time since it was acknowledged
};

// One pass over the test data.
struct EvaluationEvent {
  std::int64_t step = 0;
  std::int64_t epoch = 0;  // counted from 0: the pass over the data that it follows
  double accuracy = 0;     // 0 … 1
  double loss = std::numeric_limits<double>::quiet_NaN();
  std::int64_t samples = 0;
  Duration time{};
};

}  // namespace holdfast::inline v1
