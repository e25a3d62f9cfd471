// Saves of the step boundary where the training stands: as the planner wants it, at once, or the last one.
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

namespace holdfast { inline namespace v1 { namespace internal {

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

  // The file is laid out for the tensors that the first update made. Only the first call does something.
  bool laid_out() const { return laid_out_; }
  void lay_out();
  void skip_layout() { laid_out_ = true; }

  // What `plan` wants of this boundary, or what is due.
  void save(Decision& decision, const Plan& plan) noexcept;
  // What is asked for: of what is staged for this step already, if it is.
  SaveHandle save_now(const Waiting& waiting) noexcept;
  // False: no image came free in time.
  bool save_last() noexcept;

  // Of this boundary.
  Digest digest() const;

 private:
  bool submit(BegunSave& save, SteadyTime began, bool last_one);

  Run& run_;
  SavePartners& partners_;
  StepBoundary& boundary_;
  SaveSchedule& schedule_;
  WriteLimit& limit_;
  SaveFlow& saves_;
  LateSave& late_;
  Evaluation& evaluation_;
  bool laid_out_ = false;
  Staged last_;  // the state at a stop, kept for digest()
};

}}}  // namespace holdfast::v1::internal
