// What a run says about itself, for people and wrappers: `attempts/<n>.state.json`, written only by attempt
// n, and `RUN_STATE.json`, a copy that names its attempt. Readers believe only the highest attempt, so a
// superseded process cannot declare a run complete. Recovery ignores the content, except that a recorded
// commit forbids a silent fresh start (rule 7 of store/commit.h).
//
// Errors: readers throw IoError. Threads: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "holdfast/base/export.h"
#include "holdfast/io/file_system.h"
#include "holdfast/store/verifier.h"

namespace holdfast { inline namespace v0_2 {

enum class RunPhase { starting, running, complete, interrupted, failed, superseded };
// True if an attempt in this phase has recorded its end.
inline bool is_end(RunPhase phase) { return phase != RunPhase::starting && phase != RunPhase::running; }
HOLDFAST_EXPORT const char* word_of(RunPhase phase);  // "starting": the word used in files and messages

// How `reason` ends where the run was left to a standby, before an announced end of the machine.
inline constexpr char kHandedOver[] = "a standby goes on with the run";

struct RunState {
  AttemptNumber attempt = 0;
  RunPhase phase = RunPhase::starting;
  std::int64_t step = 0;
  std::int64_t durable_step = -1;  // -1: nothing acknowledged yet
  std::string checkpoint = {};     // newest acknowledged file name; may be empty
  std::int64_t home_step = -1;     // newest step in the mirror's second place, as far as known; -1: none
  std::string reason = {};         // why the attempt ended; may be empty
  int exit_code = 0;               // valid once the attempt has ended
  std::string host = {};
  std::string boot_id = {};
  std::string time = {};  // UTC, ISO 8601, for people
  // Not 0: this attempt is a `holdfast prune`, and repeats the state of that attempt.
  AttemptNumber copy_of = 0;
  // The attempt's saves so far, for people.
  std::int64_t saves = 0;  // acknowledged
  std::uint64_t saved_bytes = 0;
  std::int64_t elapsed_ms = 0;    // since training began
  std::int64_t waited_ms = 0;     // of that, training waited for saves
  std::int64_t most_risk_ms = 0;  // maximum of the work that a crash would have lost, as time
};

// A text that is too long for the record loses its middle. `longest_reason`: less than that, in bytes.
HOLDFAST_EXPORT std::string to_json(const RunState& state, std::size_t longest_reason = 8 << 10);
HOLDFAST_EXPORT std::optional<RunState> run_state_from_json(
    const std::string& text);  // nullopt: torn, empty or foreign
// The state of the highest attempt in a run directory; nullopt if there is none.
HOLDFAST_EXPORT std::optional<RunState> read_run_state(Directory& run_directory);

// Answers whether somebody trains there. Like read_run_state(), but skips the claim of a prune that died
// before it repeated its predecessor's state.
struct LastWord {
  AttemptNumber attempt = 0;      // the attempt that `state` is about; 0: the directory was never claimed
  std::optional<RunState> state;  // nullopt: it has claimed the directory and written no state
};
HOLDFAST_EXPORT LastWord last_word(Directory& run_directory);
// For one that has just claimed above `attempt`: the end that it had told before. nullopt: none, and if it is
// telling one now, that fails (state_writer.cc).
HOLDFAST_EXPORT std::optional<RunState> told_end(Directory& run_directory, AttemptNumber attempt);

}}  // namespace holdfast::v0_2
