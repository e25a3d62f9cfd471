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
// (76); both, and state_digest(), OutOfMemoryError (74). With `companions`, more. after_step() never throws
// for a failed save and never ends the training for one: it shows in Decision::failure until the next
// acknowledged commit. It stops the loop when a newer attempt took over. Threads: all methods on the training
// thread, except request_save() and request_stop(), which, like figures(), may be called from any thread.
// after_step waits for one memory copy of the state, never for the disk; only when told to stop, or shortly
// before an announced end of the machine, for a write in flight. Durability: a step counts as saved when
// SaveHandle says durable, when finish() returns 0 or 75, or when last_durable() names it.
//
// Pressure: one write is in flight. While it holds the only image, a save that falls due waits until the next
// step boundary that finds the image free, and takes the state of then: however slow the disk, it is given
// the newest state as soon as it can take one, nothing queues up, and the training does not wait.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/base/exit_code.h"
#include "holdfast/checkpoint/companions.h"
#include "holdfast/checkpoint/deadline_planner.h"
#include "holdfast/checkpoint/save_handle.h"
#include "holdfast/checkpoint/save_policy.h"
#include "holdfast/interruption/monitor.h"
#include "holdfast/io/file_system.h"
#include "holdfast/snapshot/snapshot_source.h"
#include "holdfast/store/checkpoint_store.h"

namespace holdfast::inline v1 {

struct CheckpointerOptions {
  // The run directory; made when missing. Ours alone, mode 0700.
  std::filesystem::path directory = {};
  // The mount it lies on. Waited for (10 min), never replaced by the root disk. Empty: not checked, but a
  // directory on the root file system gets a warning.
  std::filesystem::path mount = {};
  std::chrono::seconds mount_wait = std::chrono::minutes(10);
  // Whichever comes first. Each save costs the training thread one memory copy of the state, and the disk one
  // write of it. Empty: only when asked, when interrupted, and at the end.
  std::vector<SaveEvery> every = {SaveEvery(std::chrono::minutes(5))};
  Retention keep = KeepLast{3};
  // Re-reads what was written before it counts: the head costs milliseconds, all of it one more read.
  ReadBack read_back = ReadBack::head;
  // Start over although the directory holds checkpoints of which none verifies. Deletes nothing.
  bool allow_fresh = false;
  // Another starting point than the newest: a step, or a file (in the run directory or elsewhere).
  std::string resume_from = {};
  // Weights of this file alone, when the start is fresh: a checkpoint, or a safetensors file with the keys of
  // the model's state dict (the module is the one added as "model"). Another type, shape or key is refused.
  std::filesystem::path init_from = {};
  Overrides overrides = {};  // options that may differ from the recorded ones
  // A second image of the state: one more time its size in host memory. A save is then staged while another
  // is being written and waits for its turn (a newer one takes its place), and neither save() nor a stop
  // waits for the disk before it can copy the state. Off: a save that falls due meanwhile is taken when the
  // write is done, of the state of then; save() and a stop wait for it.
  bool second_image = false;
  int writer_threads = 2;  // 8 MiB O_DIRECT writes side by side; 2–4 fill a disk
  // MB/s (10⁶ bytes) that a write takes at most, for a volume that others use, or whose credits run out. A
  // save lasts size/limit at least, and as long its work is at risk. A stop or a deadline lifts it. 0: none.
  double write_limit = 0;
  // Writes into the oldest file that retention gives up instead of a new one: saves the file system the
  // allocation, and the volume the unlink. Costs one more checkpoint's room on the volume; whoever reads that
  // old file meanwhile sees it change.
  bool recycle = false;
  Duration term_grace = std::chrono::seconds(25);  // SIGTERM to exit; HOLDFAST_TERM_GRACE beats it
  int exit_code_interrupted = 75;                  // for launchers that need another
  bool hear_signals = true;                        // SIGTERM, SIGINT stop; SIGUSR1 saves and goes on
  // Looked at once a second (interruption/notice_file.h). Empty: none. HOLDFAST_NOTICE_FILE adds one.
  std::filesystem::path notice_file = {};
  // The process is to have ended by itself that long after its start: a notice with that deadline.
  std::optional<Duration> max_wall = {};
  // Looks whether this machine is EC2's, Google's or Azure's, and then asks its metadata service for notices
  // (interruption/sources.h). HOLDFAST_SOURCES beats this and hear_signals.
  bool cloud = true;
  // Sources of the program's own (interruption/source.h), each made once, by the constructor.
  std::vector<std::function<std::unique_ptr<Source>(Clock&)>> sources = {};
  // What becomes of the time when the machine's end is announced, by whatever source (deadline_planner.h). A
  // notice without a time counts as one of 110 s. `train_on`: a save at once, steps until the last save just
  // fits, that save, and then after_step() *pauses*: it returns when the notice is withdrawn, or a minute
  // after the deadline when the machine lives (the training goes on in place, and later notices are heard),
  // or with a stop when the run is told to stop. `wait` pauses after the first save. `exit` stops after it,
  // with 75. SIGTERM and SIGINT always mean a save and 75, also in a pause. No save is begun that cannot end
  // in time; the older checkpoint then stands, which is said.
  OnNotice on_notice = OnNotice::train_on;
  // With OnNotice::callback: asked once for each notice, on the training thread, with the time left. What it
  // throws is said, and counts as train_on.
  std::function<OnNotice(const Notice& notice, Duration left)> decide = {};
  // Run by `sh -c` beside the training when the machine is said to be at risk (EC2's rebalance
  // recommendation). Such news also saves soon, and halves the save interval for 30 minutes.
  std::string on_risk = {};
  // A warning when a notice is pending and neither after_step() nor tick() was called for so long, or for two
  // steps where those are longer.
  Duration deaf_after = std::chrono::seconds(10);
  // Before the first save is measured, a notice has a file of this size tried out, to know what a save takes;
  // in vain where the state is not larger: then the save itself is as quick. 0: never.
  std::uint64_t probe_bytes = 64u << 20;
  // Told of every save: staged, durable, overtaken, failed. On the thread where it comes to that, the
  // training's, the writer's or one that watches for notices, but one call at a time, and those about one
  // save in that order; none begins once finish() has returned. It must not block: the training, or the next
  // write, waits for it. It may call request_save(), request_stop() and figures(), and nothing else here.
  // What it throws is caught and said once; no save is lost by it.
  OnSave on_save = {};

  // The other ranks of this run, which train the same state in step with this one; distributed/agreement.h
  // makes them. nullptr, or a world of one: alone. Every rank has a Checkpointer with these options, and all
  // make the same calls at the same steps:
  //
  //   * Rank 0 claims `directory`, decides by time, and commits. The others need not see it. Those that do
  //     read the checkpoint there and write their share of each new one; if one does not, it gets the
  //     checkpoint from rank 0. All verify every byte.
  //   * What stands in the way of one rank's share costs that save, which is said, with the rank and the
  //     reason; the training goes on, and from then on rank 0 writes alone, for which it needs memory for the
  //     whole state. It does so once, without that loss, where its file has changed since the ranks agreed on
  //     one.
  //   * Before rank 0 claims, every rank checks read-only whether it would go on from that checkpoint: a rank
  //     with other options is refused (78, with its number), and the attempt that runs goes on.
  //   * Saves and stops are agreed, one step after one rank or more want them: from whatever rank a notice, a
  //     signal or a request comes, all save and stop at the same step. save() asks as request_save() does,
  //     and returns a handle on nothing; tick() says true once a stop is agreed; an EvaluationScope commits
  //     nothing by itself. Decision::saved and failure are told to all, and finish() returns rank 0's code on
  //     all ranks when the last commit is acknowledged, or is not.
  //   * metric() counts on rank 0. A value among a KeepBest's best asks for a save, and counts for that file:
  //     the state of two steps later at most, where no rank is busy.
  //   * What is a rank's own (SnapshotSource::own_of_rank) goes to rank 0 beside the training and lies in
  //     "rank/<r>/" of the file. Another number of ranks resumes from it, not bit-exact: own state of ranks
  //     that were not there is derived.
  //   * resume(), after_step() and finish() then throw when a rank is lost (75, naming it; what was committed
  //     stands), when ranks have taken different numbers of steps (UsageError), and what rank 0's resume()
  //     throws on all ranks.
  //
  // It outlives the Checkpointer, and serves that one alone.
  Companions* companions = nullptr;
  // Rank 0's counts for all. Every rank that sees rank 0's `directory` at the same path writes its share of
  // each checkpoint there (shared_write.h); who does not see it sends what is its own. What is replicated
  // (SnapshotSource::replicated: with a TrainState, trained parameters and optimizer slots) is divided by
  // bytes, the rest is rank 0's. Costs a rank memory for its share, the copy of it inside after_step (late
  // staging has no part in it; devices copy beside the training), a thread, and at most 10 s more of a start
  // where some rank does not see the directory. Turn it off in a loop whose ranks do not hold equal
  // parameters: nobody compares them at a save (DataParallel verifies them when it begins).
  bool shared_write = true;

  // Seams. nullptr: the machine's own.
  FileSystem* file_system = nullptr;
  Clock* clock = nullptr;
};

struct Resumed {
  bool fresh = true;
  std::int64_t step = 0;
  std::string checkpoint;        // file it came from
  std::vector<Skipped> skipped;  // newer files that were stepped past, and why
  bool evaluation_due = false;   // the interrupted attempt still owed an evaluation at this step
  double loss = 0;               // of the recorded step; NaN when it was not told
  bool bit_exact = true;         // false: device, libraries, threads … differ; said aloud
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
  // Waits for a write in flight, and commits nothing new. After a finish() that gave up on a write (74, the
  // time was over) it does not wait: the write, and `file_system` and `clock` with it, may be used until the
  // disk answers.
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
  // HOLDFAST_CHECK_STAGING), and what does change is named and copied early from then on. An update that
  // comes unannounced drops the save in progress, makes it again, and ends this way of staging, said once.
  // Never throws.
  void before_update();
  // After every optimizer update, never after a micro-batch.
  Decision after_step(const StepReport& report = {});
  // Between steps (data preparation, evaluation): true when the loop should stop soon. Local and cheap.
  bool tick();

  // Something measured on the state as it is now, at the last step boundary: "test_accuracy". It is recorded
  // in every checkpoint from here on, with its step (measurements.h), and KeepBest goes by it. Where `keep`
  // has a KeepBest for it and the value is among the best, this step boundary is saved now, unless it was
  // already; that costs what save() costs. UsageError for a name that cannot be one, and for "loss"
  // (StepReport::loss).
  void metric(const std::string& name, double value);

  // A save now, whatever the policy says.
  SaveHandle save();
  void request_save();                           // any thread; served by the next after_step
  void request_stop(const std::string& reason);  // any thread

  // For an evaluation between two steps, or anything else during which the state stands still. Copies the
  // whole state when it begins (one memory copy), so a notice inside commits the step boundary at once, also
  // where nothing calls tick(), whatever the evaluation does to flags, random numbers or
  // weights (averaged ones swapped in), and records that this evaluation is still due.
  class EvaluationScope {
   public:
    explicit EvaluationScope(Checkpointer& owner);
    ~EvaluationScope();
    EvaluationScope(const EvaluationScope&) = delete;
    EvaluationScope& operator=(const EvaluationScope&) = delete;
    // The evaluation was not finished: it stays due, and the checkpoint of this boundary records that. What
    // tick() stopped on this rank needs no such word.
    void cut_short();

   private:
    Checkpointer* owner_;
  };

  // The loop is over. Commits the current step if nothing newer is durable, waits, writes the run state and
  // returns the exit code (ExitCode as int): 0 complete, 75 stopped by an interruption, 74 its own last
  // commit failed, 76 superseded. Idempotent. A run that was told to stop begins no commit that cannot end in
  // time: the older checkpoint stands, and it is 75 as well. One that came to its end by itself tries, and
  // waits as long as it takes, whatever is announced.
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
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace holdfast::inline v1
