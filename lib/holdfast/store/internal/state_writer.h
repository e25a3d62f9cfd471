// Writes what an attempt says about itself, and removes the half-written files of finished attempts. Rules 6
// and 10 of store/commit.h.
//
// Errors: IoError, SupersededError. Threads: one at a time.
#pragma once

#include "holdfast/store/attempt.h"
#include "holdfast/store/internal/block_reaper.h"
#include "holdfast/store/internal/run_directory.h"
#include "holdfast/store/run_state.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// Writes attempts/<n>.state.json, durable when this returns. Then copies it to RUN_STATE.json; a crash may
// undo the copy but cannot tear it. On a full volume an end is written over the files that are there.
void write_state(RunDirectory& directory, Attempt& attempt, const RunState& state);

// Unlinks every temporary file of older attempts; durable when this returns. From then on an older attempt
// that tries to rename one of them fails, and so knows that it is superseded.
void sweep_temporaries(RunDirectory& directory, Attempt& attempt, BlockReaper& reaper);

}}}  // namespace holdfast::v0_2::internal
