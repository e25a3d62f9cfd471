// The small files beside the checkpoints: what an attempt says about itself, and the sweep of what attempts
// that are over left half-written. Rules 6 and 10 of store/commit.h.
//
// Errors: IoError, SupersededError. Threads: one at a time.
#pragma once

#include <cstdint>

#include "holdfast/store/attempt.h"
#include "holdfast/store/internal/block_reaper.h"
#include "holdfast/store/internal/run_directory.h"
#include "holdfast/store/run_state.h"

namespace holdfast::inline v1::internal {

// Bytes: the losses of sixteen million steps. Of a longer ledger nothing is read, so that no file can ask for
// more memory than that.
inline constexpr std::uint64_t kLongestLedger = 256 << 20;

// attempts/<n>.state.json, durable when this returns, then its copy RUN_STATE.json, which a crash may take
// back but never tear.
void write_state(RunDirectory& directory, Attempt& attempt, const RunState& state);

// Unlinks every temporary file of older attempts; durable when this returns. Whoever was about to rename one
// of them has been fenced off from then on.
void sweep_temporaries(RunDirectory& directory, Attempt& attempt, BlockReaper& reaper);

}  // namespace holdfast::inline v1::internal
