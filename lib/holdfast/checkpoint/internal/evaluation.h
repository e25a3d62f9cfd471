// What happens between two steps while the state stands still for the run, but not in memory: statistics,
// random numbers, averaged weights swapped in. The image of the boundary is taken when it begins, so that a
// stop inside commits that boundary, whoever hears of it.
//
// Errors: enter() throws UsageError inside another one; check_memory() throws Error.
// Threads: the training thread; commit() and running() any.
#pragma once

#include <atomic>
#include <string>

#include "holdfast/checkpoint/internal/boundary_shelf.h"
#include "holdfast/checkpoint/internal/late_save.h"
#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/checkpoint/internal/save_flow.h"
#include "holdfast/checkpoint/internal/save_schedule.h"
#include "holdfast/checkpoint/internal/step_boundary.h"

namespace holdfast { inline namespace v1 { namespace internal {

class Evaluation {
 public:
  Evaluation(Run& run, SavePartners& partners, StepBoundary& boundary, SaveSchedule& schedule,
             SaveFlow& saves, LateSave& late)
      : run_(run),
        partners_(partners),
        boundary_(boundary),
        schedule_(schedule),
        saves_(saves),
        late_(late),
        shelf_(run, partners) {}

  void enter();
  // Takes the image, or says why there is none; then nothing newer is committed before the evaluation is
  // over.
  void keep_boundary() noexcept;
  // Another thread may commit the image, unless it is safe already.
  void offer() noexcept;
  // The training looks inside: `stop`, the loop is to end.
  void look(bool stop);
  void cut_short() { unfinished_ = true; }
  // A value measured inside is among the best. The image was begun before that was known.
  void want_best() { best_wanted_ = true; }
  // What is cut short, or ended by an exception, is still due; the image stays until the next step, unless
  // `together`: what several ranks save after this, all save. True: the best is to be saved now.
  bool leave(bool thrown_out, bool together);

  bool running() const noexcept { return running_.load(); }
  const Staged& image() const { return image_; }
  // The next step boundary is reached.
  bool meets_step() const noexcept { return image_ || running(); }
  void step_inside() noexcept;
  // The others save with this process.
  void drop_image() noexcept;
  // True: it is durable, or on its way.
  bool commit() noexcept { return shelf_.commit(); }
  // Nobody else commits any longer; what was submitted is the newest save.
  void take_back() noexcept;

  // Why no step boundary is in memory, on any rank; empty: it is.
  std::string why_torn() const;
  // Throws an Error unless memory is a step boundary, or there is an image of it.
  void check_memory() const;
  // save() and finish() come between an update and the next. What after_step() began to stage is the state of
  // this step; what the program has done to memory since, is not.
  void settle_late();
  // Memory is none, or may be none.
  bool unsure() const { return boundary_.updating() || boundary_.disturbed() || running(); }

 private:
  Staged image_of_boundary();

  Run& run_;
  SavePartners& partners_;
  StepBoundary& boundary_;
  SaveSchedule& schedule_;
  SaveFlow& saves_;
  LateSave& late_;
  BoundaryShelf shelf_;
  std::atomic<bool> running_{false};  // the writer's thread tells it to the ledger
  bool unfinished_ = false;           // a look said stop, or the program said so
  bool best_wanted_ = false;          // the boundary is to be saved once this is over
  Staged image_;
};

}}}  // namespace holdfast::v1::internal
