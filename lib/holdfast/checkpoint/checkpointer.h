// Makes an existing training loop survive machines that vanish. docs/own_loop.md has the whole loop:
//
//   holdfast::Checkpointer checkpointer(state, {.directory = "/mnt/ckpt/run1"});
//   checkpointer.resume();                       // fresh, or exactly where the last attempt stopped
//   while (…) {  … checkpointer.before_update(); optimizer.step();
//     if (checkpointer.after_step({.applied = batch->cursor, .loss = loss}).stop) break;
//   }
//   return checkpointer.finish();                // the process's exit code
//
// Threads: the training thread, unless a method says "any thread". Durability: a step is saved when
// SaveHandle says durable, when finish() returns 0 or 75, or when last_durable() names it. Errors: each
// method names them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/base/exit_code.h"
#include "holdfast/base/export.h"
#include "holdfast/checkpoint/checkpointer_options.h"
#include "holdfast/snapshot/attributes.h"
#include "holdfast/snapshot/snapshot_source.h"
#include "holdfast/snapshot/tensor_spec.h"
#include "holdfast/store/checkpoint_store.h"
#include "holdfast/writing/save_handle.h"

namespace holdfast { inline namespace v0_2 {

// The checkpoint that resume() will take.
struct HOLDFAST_EXPORT Peeked {
  std::int64_t step = 0;
  std::int64_t epoch = 0;           // of the position in the data ("cursor.epoch")
  std::string checkpoint;           // the file, as in Resumed
  Attributes options;               // as resume() compares them: "optimizer.group.0.lr"
  Attributes attributes;            // all of the file, the options included: "phase.value"
  std::vector<TensorSpec> tensors;  // frozen ones included; without what other ranks have of their own

  const TensorSpec* tensor(std::string_view name) const;    // "model/fc.weight"; null: there is none
  bool has_part(std::string_view name) const;               // a name of state.add() or value()
  std::int64_t groups(const std::string& optimizer) const;  // parameter groups; 0: no such part
};

struct Resumed {
  bool fresh = true;
  std::int64_t step = 0;
  std::string checkpoint;        // file it came from
  std::vector<Skipped> skipped;  // newer files that were not used, and why
  bool evaluation_due = false;   // the interrupted attempt had not finished its evaluation at this step
  bool branch = false;           // `resume_from` chose it: what other attempts did later does not count
  double loss = 0;               // of the recorded step; NaN if the program did not report it
  bool bit_exact = true;         // false: device, libraries, threads, options … differ; logged
};

struct Decision {
  bool saved = false;                  // a save of this step has begun
  SaveHandle save;                     // that save, or a save that failed at once
  bool stop = false;                   // leave the loop and call finish()
  std::string reason;                  // why to stop
  std::optional<std::string> failure;  // the last save failed and none was acknowledged since
};

struct Durable {
  std::int64_t step = -1;  // -1: nothing yet
  std::string checkpoint;
  SteadyTime when{};
};

// A failed save never throws from the loop and never ends the training. Decision::failure reports it until
// the next acknowledged commit. But a state that no save can hold, or no start could load, ends the run
// (WritingOptions::train_unsaved). With other ranks more calls throw (RanksOptions).
//
// The training thread waits for one memory copy of the state, never for the disk, except when told to stop or
// shortly before an announced end of the machine. One write is in flight at a time. A save that falls due
// meanwhile waits for the first step boundary that finds the image free, and captures the state at that
// boundary. So a slow disk gets the newest state it can take, and nothing queues up.
class HOLDFAST_EXPORT Checkpointer {
 public:
  // Throws UsageError for options that contradict each other.
  Checkpointer(SnapshotSource& source, CheckpointerOptions options);
  // Waits for a write in flight and commits nothing new. Logs a warning if finish() was not called. Does not
  // wait if finish() gave up on a write (74: no time was left); that write may use the seams until the disk
  // answers. Does nothing in a forked child, such as a worker of a data loader: threads, files and saves in
  // flight belong to the parent.
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  // Optional. Call it as early as possible: other threads read and verify the checkpoint that resume() will
  // need, while the program reads its data and builds its model. The source is not used yet. It is only a
  // hint: it changes nothing in the run directory and logs nothing. resume() waits for it, looks again, and
  // uses only what was verified and still exists. Cost: memory for one state from now on instead of from
  // resume() on. Does nothing with `resume_from`, or while the volume is not mounted. Never throws.
  void read_ahead();
  // Optional, before resume(): what resume() will take, so that the program can build itself to that form,
  // and add parts and groups afterwards. nullopt: a fresh start. It waits for the mount as resume() does,
  // verifies the checkpoint, keeps it for resume(), and follows `resume_from`. It changes nothing in the run
  // directory and claims nothing. So resume() may take a newer one, if another attempt still saves, and says
  // what does not fit. docs/changing_state.md#peek has `home`. Ranks: all call it, and get rank 0's answer.
  // Throws as resume() does, and UsageError after resume().
  std::optional<Peeked> peek();
  // Checks the directory without writing, claims the next attempt, recovers, loads. Call once, before the
  // loop. Throws RefusedError (78), IoError (74), SupersededError (76), OutOfMemoryError (74).
  Resumed resume();

  // Optional: one line before every optimizer update. Then a save copies parameters and optimizer slots
  // beside the next forward and backward pass, and after_step() waits only for what changes earlier: buffers,
  // random numbers, counters, every user Stateful.
  // Requires that nothing changes a trained parameter or a slot between after_step() and this call, except
  // inside an EvaluationScope. This is checked. The first two saves (all with HOLDFAST_CHECK_STAGING) are
  // copied whole in after_step() and compared with live memory here. Each later save is compared by a few
  // hundred bytes of each tensor in host memory: a change of a few elements, or on a device, may go unseen. A
  // tensor that did change is named in the log, and after_step() copies it from then on.
  // An update without this call drops the save in progress and makes it again; from then on after_step()
  // copies everything, and the log says so once. Until after_step() has returned, no call commits anything
  // new, because memory holds no step boundary. Reads a result that came late (StepReport::late), and throws
  // only what that throws.
  void before_update();
  // After every optimizer update, never after a micro-batch. UsageError if the state's step has not grown
  // since the call before: to go back to an older checkpoint, start again with `resume_from`. UnsavableError
  // (a UsageError) if this boundary was to be saved and no start could load it; then the run is over. Of
  // several ranks all throw it a step later, also if it is the state of one.
  Decision after_step(const StepReport& report = {});
  // Optional: the step at which the loop ends. `holdfast status` shows it, and the time left. after_step()
  // keeps an image of that step for finish(), so call it before the loop. Any thread.
  void expect_last_step(std::int64_t step) noexcept;
  // Optional: `work` ends before each later checkpoint is committed. With MetricSink::row_sync() the rows of
  // the steps that a checkpoint holds survive what it survives. It runs on a thread of its own. A commit
  // waits 2 s for it at most; the log says once that it took longer or threw, and the commit goes on. It must
  // own what it uses, because a thread that hangs in a disk is left behind. With several ranks that of rank 0
  // runs. Any thread. Empty: does nothing.
  void commit_after(std::function<void()> work);
  // Between steps, in data preparation or evaluation: true if the loop should stop soon. Cheap, local.
  bool tick();

  // A value measured on the state at the last step boundary, such as "test_accuracy". Every later checkpoint
  // records it with its step (measurements.h), and KeepBest uses it. If `keep` has a KeepBest for the name
  // and the value is among the best, this boundary is saved now, unless it was saved already; the cost is
  // that of save(). Throws UsageError for an invalid name, and for "loss" (use StepReport::loss).
  void metric(const std::string& name, double value);

  // Saves now, whatever the policy says. If after_step() staged this step already, that image is used. Where
  // this attempt began, the handle is that checkpoint's; before the first step of all it is `failed`.
  // Between before_update() and after_step() the handle is `failed`, and the next after_step() makes the
  // save.
  SaveHandle save();
  // Any thread; served by the next after_step. If only the last save has time before an announced end, the
  // request waits, and the log says so.
  void request_save();
  void request_stop(const std::string& reason);  // any thread

  // For an evaluation between two steps, or any other phase in which the state stands still. Its constructor
  // copies the whole state (one memory copy). So a notice inside commits the step boundary at once, even if
  // nothing calls tick(), and whatever the evaluation does to flags, random numbers or weights. The
  // checkpoint records that this evaluation is still due.
  // It needs no second image: it shares that of a save of this step, and waits for a save of an older step
  // (30 s, or two commits). If that save does not end in time, a stop inside commits nothing newer; the log
  // says so.
  class EvaluationScope {
   public:
    explicit EvaluationScope(Checkpointer& owner);
    ~EvaluationScope();
    EvaluationScope(const EvaluationScope&) = delete;
    EvaluationScope& operator=(const EvaluationScope&) = delete;
    // The evaluation was not finished: it stays due, and the checkpoint of this boundary records that. Not
    // needed after tick() returned true on this rank, or when an exception ends the scope.
    void cut_short();

   private:
    Checkpointer* owner_;
    int exceptions_;  // in flight when it began
  };

  // The loop is over. Commits the current step unless something newer is durable, waits, writes the run state
  // and returns the exit code (ExitCode as int). Idempotent.
  // The step is stored as after_step() left it where an epoch ends (EpochOrder, Loader), at
  // expect_last_step(), and after a stop; the log names what has changed since. Elsewhere memory is stored,
  // and a run that goes on from there says so: with other ranks also at an epoch's end that is not the last,
  // and if they hold parts of the state (SourceTraits::needs_others).
  //   0    complete
  //   75   told to stop, and a step is durable, even if the last save failed or did not end in time; or there
  //        was nothing to save
  //   74   the last commit failed, and either the run ended by itself or nothing of it is durable
  //   64   the same, because no start could load the state (UnsavableError)
  //   70   the run ended by itself inside an update (before_update() without after_step()), or without a
  //        single after_step() and nothing resumed: such a run is not complete
  //   76   superseded
  // A run that was told to stop begins no commit that cannot end before a deadline that somebody named: the
  // older checkpoint stands, and the exit code is 75. A guessed grace does not forbid the commit. A run that
  // ended by itself commits and waits as long as that takes, whatever is announced. Throws UsageError in a
  // forked child.
  int finish();

  // Where this run's checkpoints lie: CheckpointerOptions::directory, but under `holdfast check` the
  // folder of the trial. A program that keeps files of its own beside its run names them from here, such
  // as directory().parent_path() / "ring"; then a trial never touches those of the real run. That parent
  // exists in a trial; the directory itself exists from resume() on. From the constructor on; any
  // thread.
  std::filesystem::path directory() const;
  AttemptNumber attempt() const;
  // The newest durable checkpoint. After resume(): the one that this attempt began with, unless it came from
  // a file outside the run directory.
  Durable last_durable() const;
  // The cost of this attempt's saves, and the training time at risk now (save_figures.h). Any thread. All
  // zero before resume().
  RunFigures figures() const;
  // The first 256 notices, without requests for a checkpoint, and the earliest deadline that somebody named.
  // Any thread.
  std::vector<Notice> notices() const;
  std::optional<SteadyTime> deadline() const;
  // `state=` of the current step boundary. Cost: hashes the state once. Throws OutOfMemoryError (74).
  Digest state_digest();
  // Why the run must stop, such as "SIGTERM" or "superseded by attempt 7"; empty if it need not.
  std::string stop_reason() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}}  // namespace holdfast::v0_2
