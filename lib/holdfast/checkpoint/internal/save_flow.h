// The path of one save: begun, staged into an image, submitted to the writer. Knows the newest save, and so
// whether a step boundary still needs one.
//
//   const BegunSave save = saves.begin(false);
//   saves.submit(saves.stage_all(), save, waiting.so_far());
//
// Errors: stage() as ImageStager; submit() throws std::bad_alloc. Both end in fail().
// Threads: the training thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "holdfast/checkpoint/internal/image_wait.h"
#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/checkpoint/internal/save_partners.h"
#include "holdfast/checkpoint/internal/step_boundary.h"
#include "holdfast/checkpoint/internal/unsavable_state.h"
#include "holdfast/checkpoint/measurements.h"
#include "holdfast/snapshot/device_copy.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class SaveFlow {
 public:
  SaveFlow(Run& run, SavePartners& partners, const StepBoundary& boundary, NoticeListener& listener,
           WriteLimit& limit)
      : run_(run), partners_(partners), boundary_(boundary), images_(run, listener, limit) {}

  BegunSave begin(bool asked_for) const;
  // The record of this boundary for a checkpoint, at this moment.
  const RunRecord& record();
  Staged stage_all();
  // This image with the record of this moment. Empty: that record has no place in the file's head.
  Staged renewed(Staged image);
  // Stages what may change early, and prepares the copy of the rest; of a next update that is not announced
  // it is independent.
  struct Prepared {
    Staged staged;
    std::unique_ptr<LateCopy> copy;  // destroyed before its image
  };
  Prepared prepare(NextUpdate update);
  // `waited`: how long the training thread has waited for this save.
  void submit(Staged staged, const BegunSave& save, Duration waited);
  // Call from a catch block, for any exception. `save`: null if begin() threw.
  SaveHandle fail(BegunSave save) noexcept;
  UnsavableState& unsavable() { return unsavable_; }
  // Another thread has submitted `save` (BoundaryShelf).
  void submitted(const BegunSave& save) noexcept;

  const SaveHandle& newest() const { return newest_; }
  // The program asks for this save as well.
  void ask_for_newest() {
    if (newest_begun_) newest_begun_->asked_for = true;
  }
  // covered(): this step boundary is durable or in flight. safe(): it is durable.
  bool covered() const;
  bool safe() const;
  Reached reached() const;

  // The image of a save of this boundary; empty: there is none, or it is not whole.
  Staged image_in_use() const;
  bool wait_for_image(Duration limit = Duration::max(), ImageFor use = ImageFor::save) {
    return images_.wait(limit, use);
  }

  Measurements& measurements() { return measurements_; }
  // A value measured on the state at this boundary. True: KeepBest keeps it.
  bool measure(const std::string& name, double value);

 private:
  void tell_doubts();
  Staged stage(Part part);

  Run& run_;
  SavePartners& partners_;
  const StepBoundary& boundary_;
  ImageWait images_;
  Measurements measurements_;
  // The newest snapshot submitted, as long as the writer holds it; its `snapshot` is apart.
  Staged in_flight_;
  std::weak_ptr<Snapshot> snapshot_in_flight_;
  SaveHandle newest_;
  BegunSave newest_begun_;  // the same, as far as it was begun here
  UnsavableState unsavable_{run_.options.writing.train_unsaved};
};

}}}  // namespace holdfast::v0_2::internal
