// A save whose copy runs beside the next step. Parameters and optimizer slots stand still from one update to
// the next. So in a loop that calls before_update(), they are copied while forward and backward compute.
//
// The save is open until the before_update(), save() or finish() that closes it, and is then submitted. If
// an update comes first, the save is dropped, because the state may have changed during the copy; the next
// step is then staged whole. Samples of every copy are compared with live memory (docs/own_loop.md).
// A device copies by itself (snapshot/device_copy.h), independently of updates, so that save is submitted at
// once.
//
// Errors: begin(), submit_independent() and stage_independent() as SaveFlow; image() passes on exceptions of
// the copy. Threads: the training thread; the copy has its own.
#pragma once

#include <memory>

#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/checkpoint/internal/save_flow.h"
#include "holdfast/checkpoint/internal/save_schedule.h"
#include "holdfast/staging/arrival_keeper.h"
#include "holdfast/staging/late_stager.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class LateSave {
 public:
  LateSave(Run& run, SaveFlow& saves, SaveSchedule& schedule);
  ~LateSave() { end(); }
  LateSave(const LateSave&) = delete;
  LateSave& operator=(const LateSave&) = delete;

  // False after an update without before_update() while a copy was open.
  bool works() const { return works_; }
  bool open() const { return copier_.open(); }

  // Requires that none is open.
  void begin(const BegunSave& save, const Waiting& waiting);
  // For a state on a device, in a loop that does not call before_update().
  void submit_independent(const BegunSave& save, const Waiting& waiting);
  // A share of it: stages the early part, and lets the device copy the rest.
  Staged stage_independent();

  // Before an update: compares the copy with live memory, and submits it. `ended`: no update follows, because
  // save() or finish() needs the save now. A copy made inside after_step() is right, whatever has changed
  // since.
  void close(bool ended = false);
  // The save is made again.
  void drop();
  // An update came without before_update(): from now on after_step() copies the whole state.
  void give_up();

  // The run ends without it.
  void end() noexcept;

  // An evaluation begins: returns when no copy runs, or when the device's copy is ordered before its work.
  void complete() noexcept { copier_.complete(); }
  // The whole image of the boundary; empty: none is open, or something has changed it.
  Staged image();

 private:
  bool checks() const;

  Run& run_;
  SaveFlow& saves_;
  SaveSchedule& schedule_;
  const bool check_all_;  // HOLDFAST_CHECK_STAGING
  bool works_ = true;
  int checked_ = 0;  // copies that were compared with live memory
  // While one is open:
  Staged staged_;
  BegunSave save_;
  bool whole_ = false;  // it was copied inside after_step
  LateStager copier_;   // ends before its image does
  ArrivalKeeper keeper_;
};

}}}  // namespace holdfast::v0_2::internal
