// Copies the training state into an image of the checkpoint file. Keeps the plan in step with the state: when
// tensors appear (optimizer slots after the first update) or attributes outgrow their room, it plans anew.
//
// Errors: RefusedError, IoError as make_file_plan; whatever the source throws.
// Threads: the training thread; plan_beside() on any thread that the training thread waits for before
// plan_ahead(). Snapshots may be released on any.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/checkpoint/internal/arena_pool.h"
#include "holdfast/checkpoint/run_record.h"
#include "holdfast/format/file_plan.h"
#include "holdfast/format/shares.h"
#include "holdfast/snapshot/snapshot_source.h"

namespace holdfast::inline v1::internal {

struct Staged {
  std::shared_ptr<Snapshot> snapshot;
  std::shared_ptr<const FilePlan> plan;
  std::shared_ptr<const Shares> shares = {};       // this is one rank's; null: all of it
  std::shared_ptr<const ImageLayout> layout = {};  // to copy by
  std::uint64_t bytes = 0;                         // of the state, that were copied or are to be
  Duration copied{};                               // so long the training thread copied
  explicit operator bool() const { return snapshot != nullptr; }
};

class ImageStager {
 public:
  ImageStager(SnapshotSource& source, int arenas) : source_(source), pool_(arenas) {}

  // UsageError when the state has names or sizes that cannot be stored: to be asked before a directory is
  // claimed.
  void check_source();
  // Begins on a thread of its own to lay a file out for these tensors: a guess, such as those of the
  // checkpoint that is being read. plan_ahead() takes the plan if it fits, and makes another if not. Does
  // nothing while an earlier guess stands, for more tensors than honest models have (a refusal would wait
  // for their plan), and where libhdf5 could not bear the program's own calls beside it.
  void plan_beside(std::vector<TensorSpec> tensors, std::uint64_t attribute_capacity) noexcept;
  // Lays the file out for the tensors as they are now; nothing when the plan still fits.
  void plan_ahead();
  // The image of the checkpoint that was loaded is the next save's memory: a resumed run needs no other, and
  // does not wait for fresh pages.
  void offer(std::shared_ptr<Arena> arena) { pool_.offer(std::move(arena)); }
  // Makes an image now where devices copy into it: page-locking takes as long as many copies, and a graph
  // capture may come between here and the first save.
  void make_image_ahead() {
    if (source_.on_device() && pool_.ready()) pool_.take();
  }
  // Of the file, as planned; 0 before.
  std::uint64_t bytes() const { return plan_ ? plan_->layout->length() : 0; }
  bool ready() const { return pool_.ready(); }
  bool wait_ready(std::chrono::nanoseconds wait) const { return pool_.wait_ready(wait); }

  // From the next plan on the file is divided among ranks, of which this is one.
  void divide_among(int rank, std::vector<bool> sees);
  // The same number on ranks that divide the same file, and on no others; 0: none is divided.
  std::int64_t mark() const { return mark_; }
  std::uint64_t attribute_capacity() const { return plan_ ? plan_->attribute_capacity : 0; }
  // Plans anew with that much, if there is less; nothing before the first plan.
  void widen(std::uint64_t attribute_capacity);

  // The whole state, or its early part only: the rest is then the caller's to copy
  // (SnapshotSource::prepare_late). With a `mark`: this rank's share alone, if that is still mark(), and
  // otherwise rank 0 copies all of it, and another rank throws Error. Takes an image beyond the pool's limit
  // when none is ready.
  Staged stage(const RunRecord& record, Part part = Part::all, std::int64_t mark = 0);

 private:
  void fit(std::vector<TensorSpec> tensors, std::uint64_t attribute_capacity);
  void divide_plan();
  std::vector<int> owners_of(const std::vector<TensorSpec>& tensors) const;
  PrepareImage preparation() const;
  const Share& share() const { return shares_->ranks[static_cast<std::size_t>(rank_)]; }
  std::shared_ptr<const FilePlan> planned_beside() noexcept;

  SnapshotSource& source_;
  ArenaPool pool_;
  std::shared_ptr<const FilePlan> plan_;
  std::future<std::shared_ptr<const FilePlan>> beside_;
  int rank_ = 0;
  std::vector<bool> sees_;                // by rank; empty: nothing is divided
  std::vector<int> owners_;               // by tensor of plan_, where that is divided
  std::shared_ptr<const Shares> shares_;  // of plan_
  std::shared_ptr<const ImageLayout> share_layout_;
  std::int64_t mark_ = 0;
};

}  // namespace holdfast::inline v1::internal
