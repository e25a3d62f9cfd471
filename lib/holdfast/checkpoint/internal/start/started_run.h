// What an attempt begins with: the state it loaded, and its claim on the run directory.
//
// Errors: none. Threads: a plain value.
#pragma once

#include <memory>
#include <optional>

#include "holdfast/base/clock.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/checkpoint/receipt.h"
#include "holdfast/snapshot/arena.h"
#include "holdfast/snapshot/digest.h"
#include "holdfast/staging/run_record.h"
#include "holdfast/store/checkpoint_store.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

struct StartedRun {
  Resumed resumed = {};
  RunRecord record = {};                        // what every checkpoint of this attempt records
  std::unique_ptr<CheckpointStore> store = {};  // claimed; null on a rank other than 0
  AttemptNumber from = 0;                       // wrote the starting checkpoint; 0: no attempt of this run
  Durable durable = {};                         // that checkpoint, or a newer one that rank 0 reported
  bool after_loop = false;                      // it has kRunAfterLoop, and nobody was told yet
  bool is_safe = true;                          // the next attempt would start there as well
  std::optional<double> loss = {};
  Metrics metrics = {};
  Receipt receipt = {};
  std::shared_ptr<Arena> image = {};      // held the state; memory for the next save, or for other ranks
  Digest index = {};                      // of the checkpoint that it held (CheckpointIndex::digest)
  std::shared_ptr<const void> form = {};  // SnapshotSource::hold(), until the run ends
  SteadyTime began{};                     // after the wait for the volume
};

}}}  // namespace holdfast::v0_2::internal
