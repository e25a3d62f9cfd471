// What attempts that are long over leave behind: claims, states and ledgers, three small files each. A run
// that starts thousands of times would fill its volume with them, and every look for newer claims lists them
// all.
//
// Of attempts older than the `kept` newest these go, so that
// - the highest number stays taken: the own claim is durable before, and nothing newer is touched (rule 6);
// - a recorded commit stays recorded: a state that records one goes only when a newer one does, too (rule 7);
// - a checkpoint keeps its story: the ledger of an attempt that has a checkpoint here stays.
//
// At most 300 files of each directory a call; what is left goes at later starts.
// Requires: the own claim is durable. Errors: SupersededError. What the volume refuses is logged: the files
// stay for now.
// Threads: one at a time. Durability: none needed; a deletion that a crash takes back is done again.
#pragma once

#include "holdfast/store/attempt.h"
#include "holdfast/store/internal/run_directory.h"

namespace holdfast::inline v1::internal {

void forget_old_attempts(RunDirectory& directory, Attempt& attempt, AttemptNumber kept);

}  // namespace holdfast::inline v1::internal
