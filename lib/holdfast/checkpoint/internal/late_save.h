// A save whose copy runs beside the next step. Parameters and optimizer slots stand still from one update to
// the next, so in a loop that announces its updates (before_update) they are copied while forward and
// backward compute, and the training waits only for what changes earlier.
//
// Such a save is open until the before_update() that closes it, or a save() or finish() that wants it, and is
// submitted only then. One that an update finds open is dropped, because nobody knows what happened to the
// state meanwhile; the next step is then staged whole. Whether something else has changed it is seen by
// samples, at every one.
//
// A device copies by itself (snapshot/device_copy.h). What it has set aside is independent of any update, so
// it is submitted at once, whether updates are announced or not, and arrives while the training goes on.
//
// Errors: begin(), submit_independent() and stage_independent() as SaveFlow; image() passes on what the copy
// throws.
// Threads: the training thread; the copy has its own.
#pragma once

#include <memory>

#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/checkpoint/internal/save_flow.h"
#include "holdfast/checkpoint/internal/save_schedule.h"
#include "holdfast/staging/arrival_keeper.h"
#include "holdfast/staging/late_stager.h"

namespace holdfast { inline namespace v1 { namespace internal {

class LateSave {
 public:
  LateSave(Run& run, SaveFlow& saves, SaveSchedule& schedule);
  ~LateSave() { end(); }
  LateSave(const LateSave&) = delete;
  LateSave& operator=(const LateSave&) = delete;

  // False once an update came unannounced over an open copy.
  bool works() const { return works_; }
  bool open() const { return copier_.open(); }

  // Requires that none is open.
  void begin(const BegunSave& save, const Waiting& waiting);
  // Of a state on a device, where no update is announced.
  void submit_independent(const BegunSave& save, const Waiting& waiting);
  // A share of it: stages the early part, and lets the device copy the rest.
  Staged stage_independent();

  // An update is announced: what was copied is compared, and submitted. With `ended` none follows, because
  // save() or finish() wants the save now: what was copied inside after_step is then right whatever has
  // changed since.
  void close(bool ended = false);
  // The save is made again.
  void drop();
  // The loop changed its habits: an update went by unannounced.
  void give_up();

  // The run ends without it.
  void end() noexcept;

  // An evaluation begins: returns when nothing copies any longer, or a device is ordered before its work.
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

}}}  // namespace holdfast::v1::internal
