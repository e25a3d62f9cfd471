// From an empty process to a training state and a claim on the run directory. Read-only until everything that
// could be refused has been checked, because a claim ends the attempt that is running.
//
//   StartedRun run = start_run(parts, finder, ledger, 1, nullptr);
//   run.store->commit(…);   // as attempt run.record.attempt
//
// Errors: as StartFinder; SupersededError if a newer attempt claims meanwhile. What fails after the claim is
// told in the ledger and the run state.
// Threads: the training thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/base/error.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/checkpoint/internal/start_finder.h"
#include "holdfast/checkpoint/internal/started_run.h"
#include "holdfast/ledger/ledger.h"
#include "holdfast/store/checkpoint_store.h"
#include "holdfast/store/run_state.h"

namespace holdfast { inline namespace v1 { namespace internal {

// The last word before the claim: it may still refuse.
using BeforeClaim = std::function<void(CheckpointStore& store, const Selection& found, const Start& start)>;

StartedRun start_run(const StartParts& parts, StartFinder& finder, Ledger& ledger, int world_size,
                     const BeforeClaim& before_claim);

// The checked state of `start` goes into the source, as rank `rank` holds it, and into `run`. False: an
// override accepts other options than the recorded ones.
bool load_state(const StartParts& parts, const Start& start, int rank, StartedRun& run);

// Tells how an attempt ended, for people and wrappers. What cannot be written changes no outcome, except that
// a newer attempt is seen: returns what says so.
std::optional<std::string> write_end(CheckpointStore& store, Ledger& ledger, const RunState& run) noexcept;

// Runs `work`. `tell` gets an Error of it, and a lack of memory as one, before that is thrown again.
template <class Work, class Tell>
auto telling_errors(const Work& work, const Tell& tell) {
  try {
    return work();
  } catch (const Error& error) {
    tell(error);
    throw;
  } catch (const std::bad_alloc&) {
    tell(OutOfMemoryError());
    throw;
  }
}

}}}  // namespace holdfast::v1::internal
