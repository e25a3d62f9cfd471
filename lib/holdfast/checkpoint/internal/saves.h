// The saves of this process, as the core orders them: images of the state, handles, and requests to the
// writer. What a save needs of other ranks is OtherRanks'.
//
// Errors: stage(), close_copy(), keep_open() report a failure in what they return. state() and digest() pass
// on those of the source and of ImageStager. Threads: the training thread, unless a method says any. Image
// and save are the core's numbers.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/base/mutex.h"
#include "holdfast/checkpoint/internal/other_ranks.h"
#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/checkpoint/internal/step_boundary.h"
#include "holdfast/checkpoint/measurements.h"
#include "holdfast/planning/run_events.h"
#include "holdfast/staging/arrival_keeper.h"
#include "holdfast/staging/late_stager.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class Saves {
 public:
  Saves(Run& run, OtherRanks& others, StepBoundary& boundary);

  // Lays the file out for the tensors that exist after the first update. UnsavableError ends the run.
  void lay_out();
  bool layout_tried() const { return layout_tried_; }

  // finish(): the image of the last save stays, for digest().
  void keep_last();
  // Makes the image, and for a save its handle. `at_end`: in finish(), of memory as it is then.
  run::Staged stage(const run::Stage& action, run::Call in_call);
  // `ended`: no update follows.
  run::CopyClosed close_copy(int image, run::Call in_call);
  bool copy_open() const { return copier_.open() || shelved_.load(std::memory_order_relaxed); }
  // An evaluation begins: its code may change the memory that is being copied.
  void complete_copy() noexcept { copier_.complete(); }
  // Any thread. A copy that is open ends with its image. Its memory goes back with bury(), without the lock
  // that the caller holds: to unmap gigabytes takes long.
  void free_image(int image) noexcept;
  void bury() noexcept;
  // Any thread. False: nothing was given to the writer, and the save has failed.
  bool write(const run::Write& action) noexcept;
  // Any thread. The save is over; the writer has settled, or settles, what it was given.
  void settle(const run::Settle& action) noexcept;
  // The run ends without a copy that is open.
  void end() noexcept;

  // The handle of that save, if it is known, and of the newest one.
  SaveHandle handle(int save, std::int64_t step) noexcept;
  SaveHandle newest() const;
  // A save that could not begin: it fails with this text, which is not the disk's fault.
  SaveHandle refused(std::string_view why) noexcept;
  // The training stands where this attempt began: that checkpoint, or before the first step a refusal.
  SaveHandle of_start() noexcept;
  // Any thread, while the training thread is here or waits. The same, and it counts as a failure.
  SaveHandle failed(std::string_view why, FailureKind kind) noexcept;
  // Any thread. The newest failure to make an image.
  OtherRanks::NotStaged why_not_staged() const;

  // The record of images that are kept is made anew, with what is known now.
  void renew() noexcept;
  // Any thread. The kept image of that step; empty: there is none.
  Staged kept(std::int64_t step) const;
  // Any thread. Puts the other ranks' own state into that kept image, and returns its number; 0: it is let
  // go, or written now.
  int complete(const Staged& kept, const std::function<void(const Snapshot& image)>& put_in);
  // Tells what the program has changed since that image, which is stored without that.
  void tell_changes() const;
  // At the end: frozen tensors that have changed in a way that no save could see.
  bool changed_unseen_at_end() const;

  // A value measured on the state at this boundary. True: KeepBest keeps it.
  bool measure(const std::string& name, double value);
  void begin(Measurements measurements) { measurements_ = std::move(measurements); }

  // The state at this boundary, and its digest.
  std::shared_ptr<const Snapshot> state();
  Digest digest();

  // What the newest image cost the training thread.
  Duration cost_of_copy() const { return cost_; }

 private:
  struct Image {
    int id = 0;
    bool for_save = false;
    bool shelved = false;  // an evaluation began before its save was given to the writer
    Staged staged;
    Staged renewed = {};    // the same, with a later record
    bool complete = false;  // it has the other ranks' own state
    int given_to = 0;       // the save that is writing it
    SteadyTime boundary{};  // when the training stood there
  };
  struct Open {
    int save = 0;
    BegunSave handle;
    bool given = false;  // to the writer, or to other ranks
  };

  const RunRecord& record();
  Staged make_whole(std::int64_t plan);
  Staged make_late(const BegunSave& save, bool& closed);
  Staged make_independent();
  Staged renewed(Staged image);
  void tell_doubts();
  std::string fail(BegunSave save, FailureKind kind = FailureKind::lasts) noexcept;
  BegunSave make_save() noexcept;
  bool checks() const;
  bool changed_unseen() const;
  BegunSave begin_save(int save, std::int64_t step, SteadyTime boundary) HOLDFAST_EXCLUDES(mutex_);
  void measure_saves();
  Image* find(int image) HOLDFAST_REQUIRES(mutex_);
  Open* find_open(int save) HOLDFAST_REQUIRES(mutex_);

  Run& run_;
  OtherRanks& others_;
  StepBoundary& boundary_;
  const bool check_all_;  // HOLDFAST_CHECK_STAGING
  bool layout_tried_ = false, laid_out_ = false;
  Measurements measurements_;
  int checked_ = 0;  // copies that were compared with live memory
  Duration cost_{};

  mutable Mutex mutex_;
  bool keeps_last_ HOLDFAST_GUARDED_BY(mutex_) = false;
  bool ended_ HOLDFAST_GUARDED_BY(mutex_) = false;
  std::array<Image, 3> images_ HOLDFAST_GUARDED_BY(mutex_);
  std::vector<Open> open_ HOLDFAST_GUARDED_BY(mutex_);
  std::vector<BegunSave> unmeasured_ HOLDFAST_GUARDED_BY(mutex_);  // begun without their values
  SaveHandle newest_ HOLDFAST_GUARDED_BY(mutex_);
  // The newest handles: a save may be over before the call that began it returns.
  std::array<std::pair<int, SaveHandle>, 4> recent_ HOLDFAST_GUARDED_BY(mutex_);
  Staged last_ HOLDFAST_GUARDED_BY(mutex_);
  OtherRanks::NotStaged not_staged_ HOLDFAST_GUARDED_BY(mutex_);
  struct Freed {
    Image image;
    std::unique_ptr<LateCopy> copy;  // destroyed before its image
  };
  std::array<Freed, 4> freed_ HOLDFAST_GUARDED_BY(mutex_);

  // While a copy beside the step is open:
  std::atomic<int> copying_{0};  // its image
  BegunSave copied_for_;
  bool whole_ = false;  // it was copied inside after_step
  // A copy that an evaluation has completed: what has changed since is found before the next update.
  std::unique_ptr<LateCopy> shelved_copy_ HOLDFAST_GUARDED_BY(mutex_);
  int shelved_image_ HOLDFAST_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> shelved_{false};
  LateStager copier_;  // ends before its image does
  ArrivalKeeper keeper_;
};

}}}  // namespace holdfast::v0_2::internal
