// `holdfast prune`: retention by hand, in a directory where nobody trains. A prune is an attempt: it claims
// the directory, which fences off older attempts, and deletes under rule 4 of store/commit.h. If nothing
// would go, it claims nothing.
//
// Order: the newest attempt must have ended → plan (read-only; verifies the newest two) → claim → sweep and
// verify again → repeat the predecessor's last state as its own → delete. After a crash at any point the next
// start or prune continues. Between claim and state, last_word() skips the claim.
//
// Errors: RefusedError: an attempt seems to be alive, nothing verifies, or a newer format. IoError.
// SupersededError: an attempt began meanwhile; nothing was deleted after its claim.
// Threads: one.
#pragma once

#include <functional>

#include "holdfast/store/checkpoint_store.h"

namespace holdfast { inline namespace v0_2 {

struct PruneOptions {
  std::filesystem::path directory = {};
  Retention keep = KeepLast{3};  // the Checkpointer's default, so that a prune alone deletes nothing more
  bool dry_run = false;          // plans only
  bool even_if_running = false;  // fences off an attempt that seems alive; that run ends with 76
  // Called with the plan, before the claim.
  std::function<void(const RetentionReport& plan)> planned = {};
};

struct PruneResult {
  RetentionReport report;     // what went, or would go
  AttemptNumber attempt = 0;  // the claimed number; 0: nothing was claimed or changed
};

PruneResult prune(FileSystem& file_system, Clock& clock, Verifier& verifier, const PruneOptions& options);

}}  // namespace holdfast::v0_2
