// Makes an existing training loop survive machines that vanish. Four calls around the user's own code:
//
//   holdfast::Checkpointer checkpointer(state, {.directory = "/mnt/ckpt/run1", .every = {5min}});
//   checkpointer.resume();                                // fresh, or exactly where the last attempt stopped
//   while (auto batch = loader.next()) {
//     …forward, backward…
//     checkpointer.before_update();                         // optional
//     …optimizer.step(), schedule.step()…
//     if (checkpointer.after_step({.applied = batch->cursor, .loss = loss}).stop) break;
//   }
//   return checkpointer.finish();                           // the process's exit code
//
// Errors: the constructor throws UsageError; resume() throws RefusedError (78), IoError (74), SupersededError
// (76); both, and state_digest(), OutOfMemoryError (74). With other ranks, more (RanksOptions). after_step()
// never throws for a failed save and never ends the training for one: it shows in Decision::failure until the
// next acknowledged commit. It stops the loop when a newer attempt took over. Threads: all methods on the
// training thread, except request_save() and request_stop(), which, like figures(), may be called from any
// thread. after_step waits for one memory copy of the state, never for the disk; only when told to stop, or
// shortly before an announced end of the machine, for a write in flight. Durability: a step counts as saved
// when SaveHandle says durable, when finish() returns 0 or 75, or when last_durable() names it.
//
// Pressure: one write is in flight. While it holds the only image, a save that falls due waits until the next
// step boundary that finds the image free, and takes the state of then: however slow the disk, it is given
// the newest state as soon as it can take one, nothing queues up, and the training does not wait.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/base/exit_code.h"
#include "holdfast/checkpoint/checkpointer_options.h"
#include "holdfast/snapshot/snapshot_source.h"
#include "holdfast/store/checkpoint_store.h"
#include "holdfast/writing/save_handle.h"

namespace holdfast { inline namespace v1 {

struct Resumed {
  bool fresh = true;
  std::int64_t step = 0;
  std::string checkpoint;        // file it came from
  std::vector<Skipped> skipped;  // newer files that were stepped past, and why
  bool evaluation_due = false;   // the interrupted attempt still owed an evaluation at this step
  double loss = 0;               // of the recorded step; NaN when it was not told
  bool bit_exact = true;         // false: device, libraries, threads, options … differ; logged
};

struct Decision {
  bool saved = false;                  // a save of this step has begun
  SaveHandle save;                     // that one, or one that failed at once
  bool stop = false;                   // leave the loop and call finish()
  std::string reason;                  // why to stop
  std::optional<std::string> failure;  // the last save failed and none was acknowledged since
};

struct Durable {
  std::int64_t step = -1;  // -1: nothing yet
  std::string checkpoint;
  SteadyTime when{};
};

class Checkpointer {
 public:
  Checkpointer(SnapshotSource& source, CheckpointerOptions options);
  // Waits for a write in flight, and commits nothing new; a run without finish() is logged. After a finish()
  // that gave up on a write (74, the time was over) it does not wait: that write may use the seams until the
  // disk answers. In a forked child (a worker of a data loader that returns, throws or calls exit()) it does
  // nothing: threads, files and the saves in flight are the parent's.
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  // Optional, as early as can be: begins to read and verify the checkpoint that resume() will want, on
  // threads of its own, while the program reads its data and builds its model (the source is not asked for
  // anything yet). Only a hint: changes nothing in the run directory and says nothing; resume() waits for it,
  // looks again, and believes only what was verified and is still there. Costs memory for one state from now
  // on instead of from resume() on. Does nothing with `resume_from`, or while the volume is not mounted.
  // Never throws.
  void read_ahead();
  // Checks read-only, claims the next attempt, recovers, loads. Call once, before the loop.
  Resumed resume();

  // One line before the optimizer update. Optional: in a loop that calls it before every update, a save
  // copies parameters and optimizer slots beside the next forward and backward, and after_step waits only for
  // what changes earlier (buffers, random numbers, counters, every user Stateful). Requires that nothing
  // changes a trained parameter or a slot between after_step and this call, except inside an EvaluationScope:
  // the first two saves are copied whole in after_step and compared with live memory here (all of them with
  // HOLDFAST_CHECK_STAGING), every other one by a few hundred bytes of each tensor in host memory (a change
  // of a few elements may go unseen, and any change on a device), and what does change is named and copied
  // early from then on. An update that comes unannounced drops the save in progress, makes it again, and ends
  // this way of staging, said once. From here to the end of after_step() nothing new is committed, whatever
  // is called: memory is no step boundary. Never throws.
  void before_update();
  // After every optimizer update, never after a micro-batch.
  Decision after_step(const StepReport& report = {});
  // Optional: the step at which the loop ends. `holdfast status` shows it, and the time left. Any thread.
  void expect_last_step(std::int64_t step) noexcept;
  // Between steps (data preparation, evaluation): true when the loop should stop soon. Local and cheap.
  bool tick();

  // Something measured on the state as it is now, at the last step boundary: "test_accuracy". It is recorded
  // in every checkpoint from here on, with its step (measurements.h), and KeepBest goes by it. Where `keep`
  // has a KeepBest for it and the value is among the best, this step boundary is saved now, unless it was
  // already; that costs what save() costs. UsageError for a name that cannot be one, and for "loss"
  // (StepReport::loss).
  void metric(const std::string& name, double value);

  // A save now, whatever the policy says: of what after_step() staged for this step already, if it did.
  // Between before_update() and after_step() it fails, and the next after_step() makes it.
  SaveHandle save();
  void request_save();                           // any thread; served by the next after_step
  void request_stop(const std::string& reason);  // any thread

  // For an evaluation between two steps, or anything else during which the state stands still. Copies the
  // whole state when it begins (one memory copy), so a notice inside commits the step boundary at once, also
  // where nothing calls tick(), whatever the evaluation does to flags, random numbers or
  // weights (averaged ones swapped in), and records that this evaluation is still due. Needs no second image:
  // shares that of a save of this step that is under way, and waits for one of an older step (30 s, or two
  // commits); if that does not end, a stop inside commits nothing newer, which is logged.
  class EvaluationScope {
   public:
    explicit EvaluationScope(Checkpointer& owner);
    ~EvaluationScope();
    EvaluationScope(const EvaluationScope&) = delete;
    EvaluationScope& operator=(const EvaluationScope&) = delete;
    // The evaluation was not finished: it stays due, and the checkpoint of this boundary records that. What
    // tick() stopped on this rank needs no such word, nor does what an exception ends.
    void cut_short();

   private:
    Checkpointer* owner_;
    int exceptions_;  // on their way when it began
  };

  // The loop is over. Commits the current step if nothing newer is durable, waits, writes the run state and
  // returns the exit code (ExitCode as int). Idempotent.
  //   0    complete
  //   75   told to stop, and something is durable, also where the last save failed or did not end in time;
  //        or nothing was to be saved
  //   74   its last commit failed, and the run ended by itself or nothing of it is durable
  //   70   the run ended by itself inside an update (before_update() without after_step()), or without a
  //        single after_step() and nothing resumed: neither is a complete run
  //   76   superseded
  // A run that was told to stop begins no commit that cannot end before a deadline that somebody named: the
  // older checkpoint stands, and it is 75. Where the grace is a guess, it tries. One that came to its end by
  // itself tries, and waits as long as it takes, whatever is announced. UsageError in a forked child.
  int finish();

  AttemptNumber attempt() const;
  // The newest checkpoint that is safe. After resume(): the one that this attempt began with; of a file
  // outside the run directory, nothing until the first commit here.
  Durable last_durable() const;
  // What the saves of this attempt have cost and what is at risk now (save_figures.h). Any thread. All zero
  // before resume().
  RunFigures figures() const;
  // `state=` of the current step boundary; computed on demand (hashes the state once).
  Digest state_digest();
  // Non-empty when the run was asked to stop: "SIGTERM", "superseded by attempt 7", …
  std::string stop_reason() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}}  // namespace holdfast::v1
