// `holdfast prune`: retention by hand, in a directory where nobody trains. It is one more attempt: it claims
// the directory, which fences off every older one, and deletes with the store's own housekeeping, so rule 4
// of store/commit.h holds as ever. Where nothing would go, nothing is claimed.
//
// Order: the last word of the attempts so far must be an end → the plan, read-only, every byte of the newest
// two verified → claim → sweep and verify again → repeat that last word as the own state → delete. A crash
// anywhere leaves a directory that the next start, or the next prune, goes on with: between the claim and the
// state, last_word() steps past the claim.
//
// Errors: RefusedError: an attempt seems to be alive, nothing verifies, a newer format. IoError.
// SupersededError: an attempt began meanwhile; nothing was deleted after its claim.
// Threads: one.
#pragma once

#include <functional>

#include "holdfast/store/checkpoint_store.h"

namespace holdfast::inline v1 {

struct PruneOptions {
  std::filesystem::path directory = {};
  Retention keep = KeepLast{3};
  bool dry_run = false;
  bool even_if_running = false;  // the attempt that says so is fenced off and ends with 76
  // Called with the plan before anything is claimed.
  std::function<void(const RetentionReport& plan)> planned = {};
};

struct PruneResult {
  RetentionReport report;     // what went, or would go
  AttemptNumber attempt = 0;  // that was claimed; 0: none, nothing was changed
};

PruneResult prune(FileSystem& file_system, Clock& clock, Verifier& verifier, const PruneOptions& options);

}  // namespace holdfast::inline v1
