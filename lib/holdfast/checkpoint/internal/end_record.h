// The last lines of an attempt in its ledger and in the run state, for people and for programs such as
// `holdfast supervise`.
//
// Errors: none; what cannot be written is logged, and changes no outcome.
// Threads: any, one at a time, while no writer uses the store.
#pragma once

#include <optional>
#include <string>

#include "holdfast/ledger/ledger.h"
#include "holdfast/store/checkpoint_store.h"
#include "holdfast/store/run_state.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// Returns its text if a newer attempt exists.
std::optional<std::string> write_end(CheckpointStore& store, Ledger& ledger, const RunState& end) noexcept;

}}}  // namespace holdfast::v0_2::internal
