// Removes what long-finished attempts leave: a claim, a state, a ledger and more. Thousands of starts would
// fill the volume, and every check for newer claims lists all claims. Only attempts older than the `kept`
// newest lose files, and:
// - rule 6: the highest number stays taken, because the own claim is durable and newer names stay;
// - rule 7: a recorded commit stays recorded: a state that records one goes only if a newer one does too;
// - the ledger of an attempt that still has a checkpoint here stays.
// One call removes at most 300 files of each directory; later starts remove the rest.
//
// Requires: the own claim is durable. Errors: SupersededError; other failures are logged, and the files stay.
// Threads: one at a time. Durability: none needed; a later start repeats a deletion that a crash undid.
#pragma once

#include "holdfast/store/attempt.h"
#include "holdfast/store/internal/run_directory.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

void forget_old_attempts(RunDirectory& directory, Attempt& attempt, AttemptNumber kept);

}}}  // namespace holdfast::v0_2::internal
