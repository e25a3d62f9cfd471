// What all parts of a Checkpointer share: options and seams, the training's state, notices and costs; after
// the start also the claimed run and the writer of its checkpoints.
//
// Errors: none. Threads: the training thread; monitor, costs, book, ledger and writer as their headers say;
// the ancestry in `started` any, because it does not change after the start.
#pragma once

#include <memory>

#include "holdfast/base/clock.h"
#include "holdfast/checkpoint/checkpointer_options.h"
#include "holdfast/checkpoint/internal/outlook.h"
#include "holdfast/checkpoint/internal/started_run.h"
#include "holdfast/checkpoint/internal/training_time.h"
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

namespace holdfast { inline namespace v0_2 { namespace internal {

using Waiting = TrainingTime::Waiting;

// After a save that failed or found no image, the next attempt waits this long.
inline constexpr Duration kSaveAgainAfter = std::chrono::seconds(2);

struct Run {
  Run(SnapshotSource& source, CheckpointerOptions options);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  std::int64_t step() const { return source.step(); }
  // The newest durable step; −1: none. Any thread.
  std::int64_t newest_durable() const noexcept;
  Durable last_durable() const;
  // Requires a writer. A commit that begins now ends before any named deadline. Any thread.
  bool commit_fits() const noexcept { return outlook.fits({.writing = writer->writing_for()}); }
  // Requires a writer. The training thread.
  bool last_save_too_late() const noexcept {
    return outlook.last_save_too_late({.writing = writer->writing_for()});
  }

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
  Outlook outlook;
  LossRing losses;
  StartedRun started;  // from resume() on
  // Null unless this process commits. Its thread uses store, losses, ledger and clock.
  std::unique_ptr<AsyncWriter> writer;
};

}}}  // namespace holdfast::v0_2::internal
