// A fresh start of several ranks: what decides the next step, and a checkpoint holds once for all ranks, must
// be the same on each. A start from a checkpoint compares with that.
//
// Errors: RefusedError, IoError for another text, and those of SnapshotSource::attributes().
// Threads: the training thread.
#pragma once

#include <string>
#include <string_view>

#include "holdfast/snapshot/snapshot_source.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// Of this rank, for the others.
std::string options_text(SnapshotSource& source);
// Compares with rank 0's text. Refuses another option, as SnapshotSource::check() does, unless an override
// names it. Warns of it, and of other values that a resume would give to all ranks.
void check_options(SnapshotSource& source, int rank, std::string_view of_rank_0, const Overrides& overrides);

}}}  // namespace holdfast::v0_2::internal
