// What the writer's thread is handed for one save, and what it is told about all of them (async_writer.h).
//
// Values; threads as of the classes that use them.
#pragma once

#include <functional>
#include <memory>

#include "holdfast/base/clock.h"
#include "holdfast/format/file_plan.h"
#include "holdfast/ledger/ledger.h"
#include "holdfast/planning/cost_model.h"
#include "holdfast/store/checkpoint_store.h"
#include "holdfast/writing/before_commit.h"
#include "holdfast/writing/joint_save.h"
#include "holdfast/writing/save_handle_shared.h"

namespace holdfast { inline namespace v0_2 {

struct WriteRequest {
  // Has a run record (run_record.h) among its attributes. The writer sets run.finite: the record's value, and
  // no NaN or infinity in any tensor.
  std::shared_ptr<const Snapshot> snapshot;
  std::shared_ptr<const FilePlan> plan;
  Ancestry ancestry;
  // Duration of the copy, which is part of a commit's cost.
  Duration copied{};
  // The cost of this commit is typical for later ones.
  bool usual = true;
  // Called on the writer's thread before the write. It completes the image with other ranks' own tensors. An
  // exception fails the save.
  std::function<void()> complete = {};
  // Set if other ranks expect this save: they are told of its end in every case. Null: no other rank does.
  std::shared_ptr<JointSave> others = nullptr;
  // Made when the save began; null: submit() makes one.
  std::shared_ptr<SaveHandle::Shared> save = nullptr;
};

// Hears what becomes of saves on the writer's thread, and of one that submit() refuses on the caller's.
class SaveListener {
 public:
  enum class Outcome { durable, failed, superseded };
  virtual ~SaveListener() = default;
  // The image is not read any more; the handle tells the outcome afterwards.
  virtual void save_ends(const SaveHandle::Shared& save, Outcome outcome) noexcept = 0;
  // The writer has tidied up, and takes the next save.
  virtual void writer_rests() noexcept = 0;
  // A newer attempt owns the directory.
  virtual void writer_superseded() noexcept = 0;
};

struct AsyncWriterOptions {
  int threads = 2;                                     // for hashing and writing; two keep a disk busy
  double write_limit = 0;                              // MB/s; 0: none. Commits take longer with it
  Duration ledger_interval = std::chrono::seconds(1);  // while idle; a write in flight delays it
  Duration claim_interval = std::chrono::seconds(5);   // look for newer attempts; costs one listing
  // Receives the cost of each write that no limit slowed down. Outlives the writer; null: none.
  CostModel* costs = nullptr;
  SaveListener* listener = nullptr;  // outlives the writer's thread; null: none
  Ledger* ledger = nullptr;          // drained together with the losses; outlives the writer; null: none
  BeforeCommit* before = nullptr;    // likewise
};

}}  // namespace holdfast::v0_2
