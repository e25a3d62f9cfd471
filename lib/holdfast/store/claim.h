// The text in a claim: who made it. It is for people, and for wrappers on the same machine; no decision of
// the store depends on it. A claim may be empty or torn; its fields are then empty.
//
// Errors: attempt_words() and attempts_before() throw IoError. Threads: plain values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/process/process_identity.h"
#include "holdfast/io/file_system.h"
#include "holdfast/store/run_state.h"
#include "holdfast/store/verifier.h"

namespace holdfast { inline namespace v0_2 {

struct Claimant {
  std::string boot_id = {};
  std::string host = {};
  std::string by = {};          // the program's name if it does not train: "prune"
  std::string time = {};        // UTC, when it was made; empty in claims of earlier versions
  std::string supervisor = {};  // HOLDFAST_SUPERVISOR of the process; may be empty
  ProcessIdentity process = {};
};

// The text for a claim of this process.
std::string claim_text(const std::string& by);
// Missing and malformed members stay empty.
Claimant claimant_from_text(const std::string& text);
// True if its process would be visible from here: this boot of this machine, our PID namespace. Only then
// is_running() tells that it is gone.
bool is_here(const Claimant& claimant);

// Who made the highest claim; empty fields if there is none.
Claimant newest_claimant(Directory& run_directory);

// One attempt that trains: its claim, and its state.
struct AttemptWord {
  AttemptNumber attempt = 0;
  Claimant claimant = {};
  std::optional<RunState> state = {};  // nullopt: it has written none yet
};
// The newest attempt and all that are newer than `since`, newest first, at most 64. Claims of a prune are
// skipped.
std::vector<AttemptWord> attempt_words(Directory& run_directory, AttemptNumber since);
// How many attempts that train were claimed before `attempt`. Numbers below the lowest claim that is kept
// (StoreOptions::attempts_kept) count as such attempts. Reads the claims of attempts without a ledger.
AttemptNumber attempts_before(Directory& run_directory, AttemptNumber attempt);

}}  // namespace holdfast::v0_2
