// Copies the training state into an image of the checkpoint file. It makes a new plan if tensors appear
// (optimizer slots after the first update) or if attributes outgrow their capacity.
//
// Errors: UnsavableError for a state that no file can hold; IoError from make_file_plan; exceptions of the
// source pass through.
// Threads: the training thread. plan_beside() may run on any thread that the training thread waits for before
// plan_ahead(). Snapshots may be released on any.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/format/file_plan.h"
#include "holdfast/format/shares.h"
#include "holdfast/snapshot/snapshot_source.h"
#include "holdfast/staging/internal/arena_pool.h"
#include "holdfast/staging/run_record.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

struct Staged {
  std::shared_ptr<Snapshot> snapshot;
  std::shared_ptr<const FilePlan> plan;
  std::shared_ptr<const Shares> shares = {};       // set if this is one rank's share; null: the whole state
  std::shared_ptr<const ImageLayout> layout = {};  // for the copy
  std::uint64_t bytes = 0;                         // of state, copied or still to be copied
  Duration copied{};                               // time that the training thread copied
  explicit operator bool() const { return snapshot != nullptr; }
};

class ImageStager {
 public:
  ImageStager(SnapshotSource& source, int arenas) : source_(source), pool_(arenas) {}

  // Throws UnsavableError if names or sizes of the state cannot be stored. Call it before the claim.
  void check_source();
  // Checks also everything that a save records beside the state. Finds before the claim what would
  // make every save fail. Encodes the attributes once; copies no tensor.
  void check_record(const RunRecord& record);
  // Starts to lay out a file for these tensors on another thread, as a guess: such as those of the checkpoint
  // that is being read. plan_ahead() takes the plan if it fits. Does nothing while an earlier guess runs, or
  // if libhdf5 has no lock against the program's own calls. Ignores more tensors than real models have: a
  // refusal would have to wait for their plan.
  void plan_beside(std::vector<TensorSpec> tensors, std::uint64_t attribute_capacity) noexcept;
  // Lays out the file for the current tensors, unless the plan still fits.
  void plan_ahead();
  // The image of the loaded checkpoint becomes the next save's memory. So a resumed run needs no second
  // image, and no fresh pages.
  void offer(std::shared_ptr<Arena> arena) { pool_.offer(std::move(arena)); }
  // Makes an image now if devices copy into it: page-locking takes as long as many copies, and must not
  // happen during a graph capture.
  void make_image_ahead() {
    if (source_.traits().on_device && pool_.ready()) pool_.take();
  }
  // Size of the planned file; 0 without a plan.
  std::uint64_t bytes() const { return plan_ ? plan_->layout->length() : 0; }
  bool ready() const { return pool_.ready(); }
  bool wait_ready(std::chrono::nanoseconds wait) const { return pool_.wait_ready(wait); }

  // From the next plan on the file is divided among ranks; this one is `rank`.
  void divide_among(int rank, std::vector<bool> sees);
  // Equal on ranks that divide the same file, and on no others. 0: the file is not divided.
  std::int64_t mark() const { return mark_; }
  std::uint64_t attribute_capacity() const { return plan_ ? plan_->attribute_capacity : 0; }
  // Makes a new plan with at least that capacity. Does nothing before the first plan.
  void widen(std::uint64_t attribute_capacity);

  // Stages the whole state, or only its early part; the caller then copies the rest
  // (Part::late). With a `mark`: only this rank's share if the mark still equals mark().
  // Otherwise rank 0 copies everything, and another rank throws Error. Takes an image beyond the pool's limit
  // if none is ready.
  Staged stage(const RunRecord& record, Part part = Part::all, std::int64_t mark = 0);

 private:
  void check(const Attributes& attributes) const;
  // Makes a new plan unless the present one holds these.
  void fit(const Attributes& attributes);
  // `needed`: what a plan that exists must hold; a new one gets `attribute_capacity`.
  void fit(std::vector<TensorSpec> tensors, std::uint64_t needed, std::uint64_t attribute_capacity);
  void divide_plan();
  std::vector<int> owners_of(const std::vector<TensorSpec>& tensors) const;
  std::vector<bool> trained() const;
  PrepareImage preparation() const;
  const Share& share() const { return shares_->ranks[static_cast<std::size_t>(rank_)]; }
  std::shared_ptr<const FilePlan> planned_beside() noexcept;

  SnapshotSource& source_;
  ArenaPool pool_;
  std::shared_ptr<const FilePlan> plan_;
  std::future<std::shared_ptr<const FilePlan>> beside_;
  int rank_ = 0;
  std::vector<bool> sees_;                // by rank; empty: the file is not divided
  std::vector<int> owners_;               // by tensor of plan_, if it is divided
  std::shared_ptr<const Shares> shares_;  // of plan_
  std::shared_ptr<const ImageLayout> share_layout_;
  std::int64_t mark_ = 0;
};

}}}  // namespace holdfast::v0_2::internal
