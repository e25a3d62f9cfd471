// From an empty process to a training state and a claim on the run directory. Writes nothing until every
// possible refusal has been checked, because a claim ends the attempt that is running.
//
//   run.started = start_run(run, wait, finder, standby, 1, nullptr);
//   run.started.store->commit(…);   // as attempt run.started.record.attempt
//
// Errors: as StartWait and StartFinder; SupersededError if a newer attempt claims meanwhile. A failure after
// the claim is recorded in the ledger and the run state.
// Threads: the training thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/base/error.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/checkpoint/internal/start/standby_wait.h"
#include "holdfast/checkpoint/internal/start/start_finder.h"
#include "holdfast/checkpoint/internal/start/start_wait.h"
#include "holdfast/checkpoint/internal/start/started_run.h"
#include "holdfast/store/checkpoint_store.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// Called last before the claim; may still refuse by an exception.
using BeforeClaim = std::function<void(CheckpointStore& store, const Selection& found, const Start& start)>;

StartedRun start_run(Run& run, StartWait& wait, StartFinder& finder, StandbyWait& standby, int world_size,
                     const BeforeClaim& before_claim);

// Loads the checked state of `start` into the source, as rank `rank` holds it, and into `started`. False: an
// override accepts other options than the recorded ones.
bool load_state(Run& run, const Start& start, int rank, StartedRun& started);

// Runs `work`. `tell` gets its Error (a lack of memory as one) before it is rethrown.
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

}}}  // namespace holdfast::v0_2::internal
