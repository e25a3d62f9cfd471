// What all parts of a Checkpointer share: options and seams, the training's state, notices and costs; after
// the start also the claimed run and the writer of its checkpoints.
//
// Errors: none. Threads: the training thread; monitor, costs, book, ledger and writer as their headers say;
// the ancestry in `started` any, because it does not change after the start.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "holdfast/base/clock.h"
#include "holdfast/checkpoint/checkpointer_options.h"
#include "holdfast/checkpoint/internal/start/started_run.h"
#include "holdfast/checkpoint/internal/training_time.h"
#include "holdfast/checkpoint/internal/unsavable_state.h"
#include "holdfast/interruption/monitor.h"
#include "holdfast/io/file_system.h"
#include "holdfast/ledger/ledger.h"
#include "holdfast/ledger/loss_ring.h"
#include "holdfast/planning/cost_model.h"
#include "holdfast/snapshot/snapshot_source.h"
#include "holdfast/staging/image_stager.h"
#include "holdfast/writing/async_writer.h"
#include "holdfast/writing/file_verifier.h"
#include "holdfast/writing/save_book.h"
#include "holdfast/writing/save_handle_shared.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

using Waiting = TrainingTime::Waiting;

// A save that has begun; null: none.
using BegunSave = std::shared_ptr<SaveHandle::Shared>;

// The program's answer to a notice (OnNotice::callback).
OnNotice ask_policy(const NoticeOptions& options, const Notice& notice, SteadyTime now) noexcept;

struct Run {
  Run(SnapshotSource& source, CheckpointerOptions options);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  std::int64_t step() const { return source.position().step; }
  // The newest durable step; −1: none. Any thread.
  std::int64_t newest_durable() const noexcept;
  Durable last_durable() const;
  // Before the loop: the run is told to stop, or an end is announced for which the program exits. The
  // training thread.
  bool start_must_end() noexcept;
  const CheckpointerOptions options;
  SnapshotSource& source;
  FileSystem& file_system;
  Clock& clock;
  Ledger ledger;
  Monitor monitor;
  FileVerifier verifier;
  ImageStager stager;
  CostModel costs;
  const std::shared_ptr<SaveBook> book;  // shared with every save that has begun
  TrainingTime time;
  UnsavableState unsavable{options.writing.train_unsaved};
  LossRing losses;
  StartedRun started;  // from resume() on
  BeforeCommit before_commit;
  // Null unless this process commits. Its thread uses store, losses, ledger, clock and before_commit.
  std::unique_ptr<AsyncWriter> writer;

 private:
  std::optional<std::pair<SteadyTime, OnNotice>> answered_;  // before the loop: about the notice seen then
};

}}}  // namespace holdfast::v0_2::internal
