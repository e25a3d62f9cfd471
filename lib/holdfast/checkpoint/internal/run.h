// What the parts of a Checkpointer work with: options and seams, the training's state, notices and costs;
// from the start on also the claimed run and the writer of its checkpoints.
//
// Errors: none. Threads: the training thread, except what says otherwise in its own header: monitor, costs,
// book, ledger and writer; and the ancestry in `started`, which nothing changes after the start.
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

namespace holdfast { inline namespace v1 { namespace internal {

using Waiting = TrainingTime::Waiting;

// Where a save failed or found no image, the next one is not tried before that.
inline constexpr Duration kSaveAgainAfter = std::chrono::seconds(2);

struct Run {
  Run(SnapshotSource& source, CheckpointerOptions options);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  std::int64_t step() const { return source.step(); }
  // The newest step that is safe; −1: none. Any thread.
  std::int64_t newest_durable() const noexcept;
  // A commit that begins now ends before any named deadline. Requires a writer. Any thread.
  bool commit_fits() const noexcept { return outlook.fits({.writing = writer->writing_for()}); }

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
  // Of a process that commits; its thread uses store, losses, ledger and clock.
  std::unique_ptr<AsyncWriter> writer;
};

}}}  // namespace holdfast::v1::internal
