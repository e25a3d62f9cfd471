// Saves of the current step boundary: as the planner decides, at once, or the last one.
//
// Errors: lay_out() and digest() pass on those of the source and of ImageStager. A state that cannot be
// staged now is a failed save like any other.
// Threads: the training thread.
#pragma once

#include "holdfast/checkpoint/internal/evaluation.h"
#include "holdfast/checkpoint/internal/late_save.h"
#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/checkpoint/internal/save_flow.h"
#include "holdfast/checkpoint/internal/save_schedule.h"
#include "holdfast/checkpoint/internal/write_limit.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class BoundarySaves {
 public:
  BoundarySaves(Run& run, SavePartners& partners, StepBoundary& boundary, SaveSchedule& schedule,
                WriteLimit& limit, SaveFlow& saves, LateSave& late, Evaluation& evaluation)
      : run_(run),
        partners_(partners),
        boundary_(boundary),
        schedule_(schedule),
        limit_(limit),
        saves_(saves),
        late_(late),
        evaluation_(evaluation) {}

  // Lays the file out for the tensors that exist after the first update. Does nothing once that has worked;
  // after a failure the next save tries again.
  void lay_out();
  bool layout_tried() const { return layout_tried_; }
  void skip_layout() { layout_tried_ = laid_out_ = true; }

  // Saves this boundary if `plan` needs it or a save is due.
  void save(Decision& decision, const Plan& plan) noexcept;
  // A save that the program asked for. Uses the image of this step if there is one.
  SaveHandle save_now(const Waiting& waiting) noexcept;
  // False: no image became free in time, or none is left for the save.
  bool save_last() noexcept;

  // The state at this boundary, and its digest.
  std::shared_ptr<const Snapshot> state() const;
  Digest digest() const;

 private:
  bool submit(BegunSave& save, SteadyTime began, bool last_one);
  // An image of this boundary; empty: only memory has it.
  Staged image() const;
  bool holds_last() const;
  // The loop is over, and the program has gone on to work on the state.
  void tell_changes(const Snapshot& image) const;

  Run& run_;
  SavePartners& partners_;
  StepBoundary& boundary_;
  SaveSchedule& schedule_;
  WriteLimit& limit_;
  SaveFlow& saves_;
  LateSave& late_;
  Evaluation& evaluation_;
  bool layout_tried_ = false;
  bool laid_out_ = false;
  Staged last_;  // the state at a stop, kept for digest()
};

}}}  // namespace holdfast::v0_2::internal
