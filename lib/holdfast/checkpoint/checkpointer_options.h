// Options of a Checkpointer: four fields that most runs set, and structs for the rest.
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
#include "holdfast/base/export.h"
#include "holdfast/interruption/monitor.h"
#include "holdfast/io/file_system.h"
#include "holdfast/planning/deadline_planner.h"
#include "holdfast/planning/save_policy.h"
#include "holdfast/ranks/rank_channel.h"
#include "holdfast/snapshot/snapshot_source.h"
#include "holdfast/store/checkpoint_store.h"
#include "holdfast/writing/save_handle.h"

namespace holdfast { inline namespace v0_2 {

// All effects on the machine go through these. nullptr: the real ones.
struct Seams {
  FileSystem* file_system = nullptr;
  Clock* clock = nullptr;
};

// Where resume() starts.
struct StartOptions {
  // Another starting point than the newest: a step, or a file (in the run directory or elsewhere). It begins
  // a branch, once: if the newest checkpoint has grown from it, the run goes on with the newest, so that a
  // restart loses nothing. "1200@WORD", with a word that is new, goes back to step 1200 once more.
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
  // HOME, the second and safer place of the checkpoints (docs/two_tiers.md): a directory on another volume,
  // or rclone:REMOTE:PATH. resume() claims the run there, and fetches the newest good checkpoint if
  // `directory` lacks it. `holdfast mirror` beside the trainer brings new ones there. Ignored if
  // `holdfast supervise --mirror` has done the same for `directory`. Empty: none.
  std::string home = {};
  // Mount point of HOME's volume. Empty: not checked.
  std::filesystem::path home_mount = {};
  // How long resume() waits for HOME. After that, a good checkpoint in `directory` lets the run go on alone
  // (its saves count at home only if no other machine has gone on with the run); without one, IoError (74).
  std::chrono::seconds home_wait = std::chrono::minutes(10);
  // Starts over if the directory holds checkpoints and none of them verifies. Deletes nothing.
  bool allow_fresh = false;
  // Accepts a `directory` that another user owns or may write to. Off: resume() refuses it (78), because
  // anyone who can put a file there decides what the run resumes from; digests detect damage, but are no
  // signatures. A directory is trusted if it belongs to this process's user or to root, and only these, or a
  // group of the process, may write to it. Volumes whose server decides about owners (root squash, EFS access
  // points) pass.
  bool trust_directory = false;
  Seams seams = {};
};

// The sources that announce an end, and what the run does about it.
struct NoticeOptions {
  // interruption/signal_source.h lists them. Off: the program handles signals itself.
  bool hear_signals = true;
  // Read once a second (interruption/notice_file.h). Empty: none. HOLDFAST_NOTICE_FILE adds one.
  std::filesystem::path notice_file = {};
  // The process must end by itself this long after its start; acts as a notice with that deadline. Under
  // `holdfast supervise` it is the time of all lives together (interruption/deadline_source.h).
  std::optional<Duration> max_wall = {};
  // Finds out whether this machine is EC2's, Google's or Azure's, and then asks its metadata service for
  // notices (interruption/sources.h). HOLDFAST_SOURCES overrides this.
  bool cloud = true;
  // Sources, such as "ec2", without which resume() does not start: 75 if the service does not answer, 78 if
  // there is none here (interruption/required_sight.h). HOLDFAST_REQUIRE_SOURCE adds some. The start waits
  // until each has answered once, 30 s or, on Azure, 150 s at most.
  std::vector<std::string> require_sources = {};
  // A metadata service that has not answered for this long gets one warning, and an exit code of
  // `holdfast health`.
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
  // With OnNotice::callback: called once for each notice, on the training thread, with the time left.
  // Exceptions are logged; `train_on` applies.
  std::function<OnNotice(const Notice& notice, Duration left)> decide = {};
  // Azure: once the run is paused and its last step durable, tells the service that the machine may end at
  // once instead of at the announced time. HOLDFAST_APPROVE_END overrides this.
  bool approve_end = false;
  // Run by `sh -c` beside the training when the machine is at risk (EC2's rebalance recommendation), with the
  // context of base/hook_context.h. Neither the end of the training nor `holdfast supervise` ends it. Such
  // news also saves soon, and halves the save interval for 30 minutes.
  std::string on_risk = {};
  // Warns if a notice is pending and neither after_step() nor tick() was called for this long, or for two
  // steps if those are longer.
  Duration deaf_after = std::chrono::seconds(10);
};

// How a checkpoint gets to the volume.
struct WritingOptions {
  int threads = 2;  // 8 MiB O_DIRECT writes side by side; 2–4 fill a disk
  // Reads the written file again before the commit. The head costs milliseconds, the whole file one more
  // read.
  ReadBack read_back = ReadBack::head;
  // Ends a run that cannot save: if no save has succeeded for this long after one that failed, the run stops;
  // with 74 if its last save fails too, otherwise with 75. Zero: never. Unset: never, but under `holdfast
  // supervise` 1 h if the reason cannot pass by itself. HOLDFAST_GIVE_UP_UNSAVED overrides this.
  std::optional<Duration> give_up_unsaved = {};
  // A second image of the state: one more time its size in host memory. A save is then staged while another
  // is being written and waits for its turn (a newer one replaces it), and neither save() nor a stop waits
  // for the disk before it can copy the state. Off: a save that falls due meanwhile copies the state when the
  // write is done; save() and a stop wait for it.
  bool second_image = false;
  // What follows when the state is one that no save can hold, or no start could bring back (a new parameter
  // group, a module that was cast: docs/training_state.md#the-form). Off: after_step() throws UsageError (64)
  // at the first boundary that shows it, and the newest checkpoint stands. On: these saves fail, the log says
  // so, and the training goes on without them.
  bool train_unsaved = false;
  // Limit of a write in MB/s (10⁶ bytes), for a volume that others use, or whose credits run out. A save then
  // takes at least size/limit, and its work is at risk as long. A stop or a deadline lifts it. 0: none.
  double write_limit = 0;
  // Called for every save when it is staged, durable, overtaken or failed. Runs on the thread where that
  // happens: the training's, the writer's or one that watches for notices. One call at a time; calls about
  // one save come in that order; none begins after finish() has returned. It must not block, because the
  // training or the next write waits for it. Of the Checkpointer it may call only request_save(),
  // request_stop() and figures(). Its exceptions are logged once; no save is lost by them. On other
  // threads it has the signal mask of the thread that made the Checkpointer, and passes it on to commands.
  OnSave on_save = {};
};

// The other ranks of this run, which train the same state in step with this one. Every rank has a
// Checkpointer with the same options, and all make the same calls at the same steps. Rank 0 claims
// `directory`, decides by time, and commits; all ranks save and stop at the same step, and finish() returns
// rank 0's exit code on all. docs/ranks_in_detail.md#what-each-call-does-with-ranks has every call.
//
// save() only requests a save, and returns an empty handle. tick() returns true once a stop is agreed.
// metric() counts on rank 0. Decision::saved and failure are the same on all ranks.
//
// resume(), after_step() and finish() throw when a rank is lost (75, names it; committed steps stand) and
// when ranks have taken different numbers of steps (UsageError). An exception of rank 0's resume() is thrown
// on all ranks.
struct RanksOptions {
  // distributed/agreement.h makes one. nullptr, or a world of one: no other ranks. It must outlive the
  // Checkpointer, and serve no other.
  RankChannel* channel = nullptr;
  // Rank 0's counts for all. Every rank that sees rank 0's `directory` at the same path writes its share of
  // each checkpoint there (shared_write.h); a rank that does not sends its own state. Replicated tensors
  // (Sharing::same: with a TrainState, trained parameters and optimizer slots) are divided by
  // bytes, the rest is rank 0's. Cost for a rank: memory for its share, its copy inside after_step() (late
  // staging does not apply; devices copy beside the training), a thread, and up to 10 s at the start if a
  // rank does not see the directory. Turn it off if the ranks do not hold equal parameters: a save does not
  // compare them (DataParallel verifies them at its start).
  bool shared_write = true;
};

struct HOLDFAST_EXPORT CheckpointerOptions {
  // The run directory, with mode 0700; made if it is missing. Nothing else belongs there.
  std::filesystem::path directory = {};
  // The mount on which it lies. resume() waits for the mount and never uses the root disk instead. Empty: not
  // checked, but a directory on the root file system gets a warning.
  std::filesystem::path mount = {};
  // The first trigger decides. Each save costs the training thread one memory copy of the state, and the disk
  // one write of it. `automatic()` chooses the interval from the measured cost: at most 0.5 % of the
  // training's time, at least 10 s. The first save comes early, to measure that cost (save_policy.h). Empty:
  // only when asked, when interrupted, and at the end.
  SaveTriggers every = SaveEvery::automatic();
  Retention keep = KeepLast{3};
  StartOptions start = {};
  NoticeOptions notices = {};
  WritingOptions writing = {};
  RanksOptions ranks = {};

  // Throws UsageError for impossible values and for options that contradict each other.
  void check() const;
};

}}  // namespace holdfast::v0_2
