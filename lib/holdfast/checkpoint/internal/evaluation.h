// An evaluation between two steps. For the run the state stands still; memory may change (statistics, random
// numbers, averaged weights swapped in). So the image of the boundary is made when the evaluation begins, and
// a stop inside commits that image, whichever thread hears of it.
//
// Errors: enter() throws UsageError inside another one; check_memory() throws Error.
// Threads: the training thread; commit() and running() any.
#pragma once

#include <atomic>
#include <string>

#include "holdfast/checkpoint/internal/boundary_shelf.h"
#include "holdfast/checkpoint/internal/held_boundary.h"
#include "holdfast/checkpoint/internal/late_save.h"
#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/checkpoint/internal/save_flow.h"
#include "holdfast/checkpoint/internal/save_schedule.h"
#include "holdfast/checkpoint/internal/step_boundary.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class Evaluation {
 public:
  Evaluation(Run& run, SavePartners& partners, StepBoundary& boundary, SaveSchedule& schedule,
             SaveFlow& saves, LateSave& late, HeldBoundary& held)
      : run_(run),
        partners_(partners),
        boundary_(boundary),
        schedule_(schedule),
        saves_(saves),
        late_(late),
        held_(held),
        shelf_(run, partners) {}

  void enter();
  // Makes the image. If that fails, logs why; nothing newer is committed until the evaluation is over.
  void keep_boundary() noexcept;
  // Lets other threads commit the image, unless the step is durable already.
  void offer() noexcept;
  // The training thread called tick() inside. `stop`: the loop must end.
  void tick(bool stop);
  void cut_short() { unfinished_ = true; }
  // A value measured inside is among the best; the image was made before that was known.
  void want_best() { best_wanted_ = true; }
  // The evaluation ends. If it was cut short or ended by an exception, it is still due, and the image stays
  // until the next step, unless `together`: several ranks make their next save all together. True: a best
  // value must be saved now.
  bool leave(bool thrown_out, bool together);

  bool running() const noexcept { return running_.load(); }
  // The boundary as it was when the evaluation began, or as after_step() left it; empty: only memory has it.
  Staged image() const { return image_ ? image_ : held_.image(); }
  // The next step boundary is reached: drops all images.
  bool meets_step() const noexcept { return image_ || held_.holds() || running(); }
  void step_inside() noexcept;
  // The others save with this process. An image that after_step() made stays.
  void drop_image() noexcept;
  // True: the boundary is durable or in flight.
  bool commit() noexcept { return shelf_.commit(); }
  // No other thread commits from here on. A save that one submitted is the newest save.
  void take_back() noexcept;

  // Why memory holds no step boundary, on this or another rank; empty: it does.
  std::string why_torn() const;
  // Throws an Error unless memory is a step boundary, or there is an image of it.
  void check_memory() const;
  // For save() and finish(). The image that after_step() began to stage is the state of this step. Memory may
  // have been changed by the program since.
  void settle_late();
  // Memory holds no step boundary, or may hold none.
  bool unsure() const { return boundary_.updating() || boundary_.disturbed() || running(); }

 private:
  Staged image_of_boundary();

  Run& run_;
  SavePartners& partners_;
  StepBoundary& boundary_;
  SaveSchedule& schedule_;
  SaveFlow& saves_;
  LateSave& late_;
  HeldBoundary& held_;
  BoundaryShelf shelf_;
  std::atomic<bool> running_{false};  // the writer's thread reads it for the ledger
  bool unfinished_ = false;           // tick() returned true, or the program called cut_short()
  bool best_wanted_ = false;          // the boundary is to be saved once this is over
  Staged image_;
};

}}}  // namespace holdfast::v0_2::internal
