// What a Checkpointer is told: four fields that most runs set, and structs for the rest.
//
//   {.directory = "/mnt/ckpt/run1", .mount = "/mnt/ckpt", .start = {.resume_from = "1200"}}
//
// Errors: the Checkpointer's constructor throws UsageError for values that contradict each other.
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
#include "holdfast/interruption/monitor.h"
#include "holdfast/io/file_system.h"
#include "holdfast/planning/deadline_planner.h"
#include "holdfast/planning/save_policy.h"
#include "holdfast/ranks/rank_channel.h"
#include "holdfast/snapshot/snapshot_source.h"
#include "holdfast/store/checkpoint_store.h"
#include "holdfast/writing/save_handle.h"

namespace holdfast { inline namespace v1 {

// Every effect on the machine goes through these. nullptr: the machine's own.
struct Seams {
  FileSystem* file_system = nullptr;
  Clock* clock = nullptr;
};

// Where resume() begins.
struct StartOptions {
  // Another starting point than the newest: a step, or a file (in the run directory or elsewhere).
  std::string resume_from = {};
  // Weights of this file alone, when the start is fresh: a checkpoint, or a file of safetensors or PyTorch
  // (docs/interop.md) with the keys of the model's state dict (the module is the one added as "model").
  // Another type, shape or key is refused.
  std::filesystem::path init_from = {};
  // Options that may differ from the recorded ones. A difference is logged with both values, and withdraws
  // the bit-exact promise.
  Overrides overrides = {};
  // How long resume() waits for the mount.
  std::chrono::seconds mount_wait = std::chrono::minutes(10);
  // Start over although the directory holds checkpoints of which none verifies. Deletes nothing.
  bool allow_fresh = false;
  // Goes on although another user owns `directory` or may write to it. Off: resume() refuses (78), because
  // anyone who can put a file there decides what the run resumes from: digests detect damage, they are no
  // signatures. A directory is trusted if it belongs to this process's user or to root, and only these, or a
  // group of the process, may write to it. Volumes whose server decides about owners (root squash, EFS access
  // points) pass.
  bool trust_directory = false;
  Seams seams = {};
};

// What announces an end, and what the run does then.
struct NoticeOptions {
  bool hear_signals = true;  // interruption/signal_source.h lists them
  // Read once a second (interruption/notice_file.h). Empty: none. HOLDFAST_NOTICE_FILE adds one.
  std::filesystem::path notice_file = {};
  // The process must end by itself that long after its start: a notice with that deadline. Under
  // `holdfast supervise` it is the time of all lives together (interruption/deadline_source.h).
  std::optional<Duration> max_wall = {};
  // Finds out whether this machine is EC2's, Google's or Azure's, and then asks its metadata service for
  // notices (interruption/sources.h). HOLDFAST_SOURCES overrides this and hear_signals.
  bool cloud = true;
  // Sources, such as "ec2", without which resume() does not start: 75 if the service does not answer, 78 if
  // there is none here (interruption/required_sight.h). HOLDFAST_REQUIRE_SOURCE adds some. The start waits
  // until each has answered once, 30 s or, on Azure, 150 s at most.
  std::vector<std::string> require_sources = {};
  // One warning when a metadata service has not answered for that long. `holdfast health` has an exit code.
  Duration blind_after = kBlindAfter;
  // Sources of the program (interruption/source.h). The constructor calls each function once.
  std::vector<std::function<std::unique_ptr<Source>(Clock&)>> sources = {};
  // Time from SIGTERM to the end; HOLDFAST_TERM_GRACE overrides it. None: 25 s, in a container 10 s
  // (interruption/term_grace.h).
  std::optional<Duration> term_grace = {};
  int exit_code_interrupted = 75;  // for launchers that need another
  // What the run does with the time until an announced end, from any source (deadline_planner.h). A notice
  // without a time counts as one of 110 s. `train_on`: a save at once, steps until the last save just fits,
  // that save, and then after_step() *pauses*: it returns when the notice is withdrawn, or a minute after the
  // deadline when the machine lives (the training goes on, and later notices are heard), or with a stop when
  // the run is told to stop. `wait` pauses after the first save. `exit` stops after it, with 75. SIGTERM and
  // SIGINT always mean a save and 75, also in a pause. No save begins that cannot end in time; the older
  // checkpoint then stands, and the log says so.
  OnNotice on_notice = OnNotice::train_on;
  // With OnNotice::callback: called once for each notice, on the training thread, with the time left. What it
  // throws is logged, and train_on applies.
  std::function<OnNotice(const Notice& notice, Duration left)> decide = {};
  // Azure: tells it in the pause, once the last step is durable, that the machine may go at once instead of
  // at its time. HOLDFAST_APPROVE_END overrides this.
  bool approve_end = false;
  // Run by `sh -c` beside the training when the machine is at risk (EC2's rebalance recommendation), with the
  // context of base/hook_context.h. Neither the end of the training nor `holdfast supervise` ends it. Such
  // news also saves soon, and halves the save interval for 30 minutes.
  std::string on_risk = {};
  // A warning when a notice is pending and neither after_step() nor tick() was called for that long, or for
  // two steps if those are longer.
  Duration deaf_after = std::chrono::seconds(10);
};

// How a checkpoint gets to the volume.
struct WritingOptions {
  int threads = 2;  // 8 MiB O_DIRECT writes side by side; 2–4 fill a disk
  // Re-reads what was written before it counts: the head costs milliseconds, all of it one more read.
  ReadBack read_back = ReadBack::head;
  // A second image of the state: one more time its size in host memory. A save is then staged while another
  // is being written and waits for its turn (a newer one replaces it), and neither save() nor a stop waits
  // for the disk before it can copy the state. Off: a save that falls due meanwhile copies the state when the
  // write is done; save() and a stop wait for it.
  bool second_image = false;
  // MB/s (10⁶ bytes) that a write takes at most, for a volume that others use, or whose credits run out. A
  // save lasts size/limit at least, and its work is at risk as long. A stop or a deadline lifts it. 0: none.
  double write_limit = 0;
  // Told of every save: staged, durable, overtaken, failed. Called on the thread where that happens (the
  // training's, the writer's or one that watches for notices), but one call at a time, and calls about one
  // save in that order; none begins once finish() has returned. It must not block: the training, or the next
  // write, waits for it. It may call request_save(), request_stop() and figures(), and nothing else here.
  // What it throws is caught and logged once; no save is lost by it.
  OnSave on_save = {};
};

// The other ranks of this run, which train the same state in step with this one. Every rank has a
// Checkpointer with the same options, and all make the same calls at the same steps:
//
//   * Rank 0 claims `directory`, decides by time, and commits. The others need not see it. Those that do
//     read the checkpoint there and write their share of each new one; if one does not, it gets the
//     checkpoint from rank 0. All verify every byte.
//   * What stands in the way of one rank's share costs that save, which is logged, with the rank and the
//     reason; the training goes on, and from then on rank 0 writes alone, for which it needs memory for the
//     whole state. If rank 0's layout changed after the vote, rank 0 writes that checkpoint alone; no save is
//     lost.
//   * Before rank 0 claims, every rank checks read-only whether it would resume from that checkpoint: a rank
//     with other options is refused (78, with its number), and the attempt that runs goes on.
//   * Saves and stops are agreed: the ranks vote about once a second (ranks/vote_cadence.h), so all save and
//     stop at the same step, within about a second and two steps, whichever rank a notice, a signal or a
//     request comes from. A save by steps begins at its step. save() asks as request_save() does, and returns
//     an empty handle; tick() returns true once a stop is agreed. Decision::saved and failure are told to
//     all, and finish() returns rank 0's code on all ranks when the last commit is acknowledged, or is not.
//   * An EvaluationScope copies the whole state on rank 0, and each other rank's own state there. Whichever
//     rank hears of an end, rank 0 commits that boundary at once; the ranks evaluate on, and what they do
//     next is agreed as ever. It needs all of them to be inside one, at the same step, however late they
//     come; where rank 0 evaluates alone, and for a component that other ranks have parts of
//     (bring_together()), the next save is the first.
//   * metric() counts on rank 0. A value among a KeepBest's best asks for a save, and counts for that file:
//     the state a step after the next vote, where no rank is busy.
//   * A rank's own state (SnapshotSource::own_of_rank) goes to rank 0 beside the training and lies in
//     "rank/<r>/" of the file. Another number of ranks resumes from it, not bit-exact: own state of ranks
//     that were not there is derived.
//   * resume(), after_step() and finish() then throw when a rank is lost (75, naming it; what was committed
//     stands), when ranks have taken different numbers of steps (UsageError), and what rank 0's resume()
//     throws on all ranks.
struct RanksOptions {
  // distributed/agreement.h makes one. nullptr, or a world of one: alone. It outlives the Checkpointer, and
  // serves that one alone.
  RankChannel* channel = nullptr;
  // Rank 0's counts for all. Every rank that sees rank 0's `directory` at the same path writes its share of
  // each checkpoint there (shared_write.h); a rank that does not sends its own state. Replicated tensors
  // (SnapshotSource::replicated: with a TrainState, trained parameters and optimizer slots) are divided by
  // bytes, the rest is rank 0's. Costs a rank memory for its share, the copy of it inside after_step (late
  // staging has no part in it; devices copy beside the training), a thread, and at most 10 s more of a start
  // where some rank does not see the directory. Turn it off in a loop whose ranks do not hold equal
  // parameters: a save does not compare them (DataParallel verifies them when it begins).
  bool shared_write = true;
};

struct CheckpointerOptions {
  // The run directory; made when missing. Ours alone, mode 0700.
  std::filesystem::path directory = {};
  // The mount it lies on. Waited for, never replaced by the root disk. Empty: not checked, but a directory on
  // the root file system gets a warning.
  std::filesystem::path mount = {};
  // Whichever comes first. Each save costs the training thread one memory copy of the state, and the disk one
  // write of it. `automatic()` chooses the interval from the measured cost: at most 0.5 % of the training's
  // time, at least 10 s. The first save comes early, to measure that cost (save_policy.h). Empty: only when
  // asked, when interrupted, and at the end.
  std::vector<SaveEvery> every = {SaveEvery::automatic()};
  Retention keep = KeepLast{3};
  StartOptions start = {};
  NoticeOptions notices = {};
  WritingOptions writing = {};
  RanksOptions ranks = {};

  // Throws UsageError for what cannot be, or contradicts itself.
  void check() const;
};

}}  // namespace holdfast::v1
