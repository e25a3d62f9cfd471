// The image of a step boundary at which an epoch or the run's loop ends. There a program works on the state
// after after_step(): it lowers a rate, loads the best weights, evaluates. A save, an evaluation and finish()
// then take this image instead of memory. With several ranks it is rank 0's, and of the last step alone.
//
// Errors: none; what fails is logged. Threads: the training thread.
#pragma once

#include <cstdint>

#include "holdfast/checkpoint/internal/late_save.h"
#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/checkpoint/internal/save_flow.h"
#include "holdfast/checkpoint/internal/step_boundary.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class HeldBoundary {
 public:
  // An epoch's image may cost the training at most this part of its time.
  static constexpr int kMostOfTime = 100;  // one in so many

  HeldBoundary(Run& run, StepBoundary& boundary, SaveFlow& saves, LateSave& late)
      : run_(run), boundary_(boundary), saves_(saves), late_(late) {}

  // In after_step(). Does nothing if the step is durable. An epoch's image is also left out if epochs are too
  // short for it, or if no memory is free; the last one waits for that, as finish() would.
  void hold(bool is_last) noexcept;
  // The next step has begun.
  void drop() noexcept { image_ = {}; }

  bool holds() const { return static_cast<bool>(image_); }
  // With the record of this moment. Empty: there is none, or an update has begun since.
  Staged image() const;

 private:
  Run& run_;
  StepBoundary& boundary_;
  SaveFlow& saves_;
  LateSave& late_;
  Staged image_;
  Duration cost_{};    // of the newest copy
  SteadyTime made_{};  // when that was
};

}}}  // namespace holdfast::v0_2::internal
