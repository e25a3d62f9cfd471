// What a run says about itself, for people and wrappers: `attempts/<n>.state.json`, written only by attempt
// n, and `RUN_STATE.json`, a copy that names its attempt. Readers believe the highest attempt only, so a
// zombie cannot declare a run complete. Content decides nothing in recovery.
//
// Threads: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "holdfast/io/file_system.h"
#include "holdfast/store/verifier.h"

namespace holdfast::inline v1 {

enum class RunPhase { starting, running, complete, interrupted, failed, superseded };

struct RunState {
  AttemptNumber attempt = 0;
  RunPhase phase = RunPhase::starting;
  std::int64_t step = 0;
  std::int64_t durable_step = -1;  // -1: nothing acknowledged yet
  std::string checkpoint = {};     // newest acknowledged file name, may be empty
  std::string reason = {};         // why it ended, may be empty
  int exit_code = 0;               // meaningful when ended
  std::string host = {};
  std::string boot_id = {};
  std::string time = {};  // UTC, ISO 8601, for people
  // Not 0: this attempt did not train; it repeats what that one said (`holdfast prune`).
  AttemptNumber copy_of = 0;
  // Of the attempt's saves so far, for people.
  std::int64_t saves = 0;  // acknowledged
  std::uint64_t saved_bytes = 0;
  std::int64_t elapsed_ms = 0;    // since it began to train
  std::int64_t waited_ms = 0;     // of that, the training waited for saves
  std::int64_t most_risk_ms = 0;  // the longest time of work that a crash would have taken
};

std::string to_json(const RunState& state);
std::optional<RunState> run_state_from_json(const std::string& text);  // nullopt: torn, empty or foreign
// The state of the highest attempt of a run directory; nullopt when there is none.
std::optional<RunState> read_run_state(Directory& run_directory);

// The same for whoever asks whether somebody trains there: the claim of a prune that died before it could
// repeat its predecessor's state is stepped past.
struct LastWord {
  AttemptNumber attempt = 0;      // whose state, or silence, this is; 0: nobody ever claimed the directory
  std::optional<RunState> state;  // nullopt: it has claimed the directory and said nothing
};
LastWord last_word(Directory& run_directory);

}  // namespace holdfast::inline v1
