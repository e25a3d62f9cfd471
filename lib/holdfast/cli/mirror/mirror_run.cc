#include "holdfast/cli/mirror/mirror_run.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/cli/durations.h"
#include "holdfast/cli/supervise/run_account.h"
#include "holdfast/interruption/term_grace.h"
#include "holdfast/mirror/rclone_home.h"
#include "holdfast/store/attempt.h"
#include "holdfast/store/checkpoint_store.h"
#include "holdfast/store/claim.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr int kVerifyThreads = 2;  // 8 MiB each
constexpr int kNiceness = 10;
constexpr Duration kLookAtTrainer = std::chrono::milliseconds(200);
constexpr Duration kWhileItWrites = std::chrono::milliseconds(20);
// glibc has neither a wrapper of ioprio_set() nor names for its numbers.
constexpr int kOfThisProcess = 1;    // IOPRIO_WHO_PROCESS
constexpr int kIdleClass = 3 << 13;  // IOPRIO_CLASS_IDLE

AttemptNumber highest_here(const std::filesystem::path& directory) {
  const auto run = FileSystem::real().open_directory(directory, false);
  return run ? highest_attempt(*run) : 0;
}

// A fetch writes in the run directory itself.
class Preparing {
 public:
  explicit Preparing(bool& flag) : flag_(flag) { flag_ = true; }
  ~Preparing() { flag_ = false; }
  Preparing(const Preparing&) = delete;
  Preparing& operator=(const Preparing&) = delete;

 private:
  bool& flag_;
};

}  // namespace

MirrorRun::MirrorRun(const MirrorRequest& request, std::function<void()> also)
    : request_(request),
      home_wait_(duration_of("--home-wait", request.home_wait)),
      before_(highest_here(request.directory)),
      also_(std::move(also)),
      trainer_(FileSystem::real(), request.directory, Clock::real()),
      copies_lock_(FileSystem::real(), request.directory, LocalLock::Work::copies),
      starts_lock_(FileSystem::real(), request.directory, LocalLock::Work::starts),
      verifier_(kVerifyThreads),
      pace_(
          Clock::real(), request.limit, [this] { poll(); }, [this] { give_way(); }),
      home_(open_home({.place = request.home, .keep = request.home_keep, .mount = request.home_mount},
                      FileSystem::real(), verifier_, pace_)),
      mirror_(FileSystem::real(), verifier_, *home_,
              {.directory = request.directory,
               .once = request.once,
               .before_work = [this] { hold_copies(); },
               .end_is_announced = [this] { return trainer_.end_is_announced(); }},
              pace_) {
  // Nobody loads a state here, so no image of one takes memory beside the trainer's.
  verifier_.stop_keeping();
  // Before any thread that verifies: on Linux the niceness belongs to a thread, and new threads inherit it.
  work_quietly();
}

void MirrorRun::look_at_place() {
  if (std::exchange(looked_at_place_, true) || request_.home.starts_with(kRclonePrefix) ||
      !request_.home_mount.empty() || !FileSystem::real().on_root_file_system(request_.home))
    return;
  log_warning("{} lies on the root file system: is its volume mounted? --home-mount makes sure of it",
              request_.home);
}

// The trainer and its saves come first. Best effort.
void MirrorRun::work_quietly() {
  setpriority(PRIO_PROCESS, 0, kNiceness);
  syscall(SYS_ioprio_set, kOfThisProcess, 0, kIdleClass);
}

// The later claim of two mirrors in HOME would end the other one, and its trainer with 76.
void MirrorRun::hold_copies() {
  if (request_.supervised) return hold_both({});
  if (copies_lock_.hold()) return;
  throw AnotherMirror(
      request_.directory.native() +
      ": another mirror on this machine brings its checkpoints home (`holdfast supervise "
      "--mirror`, `holdfast mirror`); `holdfast status` shows what is home. Nothing was changed");
}

void MirrorRun::hold_starts() {
  if (request_.supervised) return hold_both(home_wait_);
  if (starts_lock_.hold()) return;
  throw AnotherMirror(
      request_.directory.native() +
      ": `holdfast supervise --mirror` on this machine fetches before each start by itself, or "
      "another `holdfast fetch` runs. Nothing was changed");
}

// A helper that somebody has started by hand may be at work, and will end.
void MirrorRun::hold_both(std::optional<Duration> limit) {
  const SteadyTime began = Clock::real().now();
  bool said = false;
  while (!starts_lock_.hold() || !copies_lock_.hold()) {
    if (limit && Clock::real().now() >= began + *limit) {
      throw HomeError(request_.directory.native() +
                      ": another mirror on this machine still brings its checkpoints home; stop it");
    }
    if (!std::exchange(said, true)) {
      log_warning("another mirror on this machine brings the checkpoints of {} home: waiting until it ends",
                  request_.directory);
    }
    pace_.wait(std::chrono::seconds(1));
  }
}

void MirrorRun::poll() {
  hear();
  if (also_) also_();
  if (!preparing_) mirror_.exchange_notes();
}

void MirrorRun::hear() {
  const SteadyTime now = Clock::real().now();
  while (const auto signal = inbox_.wait(Duration::zero())) {
    if (*signal != SIGTERM && *signal != SIGINT) continue;
    // Told twice: nothing more is brought home.
    if (end_) throw MirrorStopped();
    const Duration grace = term_grace().time;
    log_info("told to stop: the newest checkpoint may still get home, for {} at most",
             format_duration(grace));
    end_ = now + grace;
    pace_.lift_limit();
  }
  if (!end_) return;
  if (now >= *end_) throw MirrorStopped();
  // The trainer was probably told to stop as well, and its last save is the one that matters.
  if (mirror_.finishing() || now < next_look_) return;
  next_look_ = now + kLookAtTrainer;
  if (!trainer_may_save()) mirror_.finish();
}

bool MirrorRun::trainer_may_save() const {
  try {
    const auto run = FileSystem::real().open_directory(request_.directory, false);
    const auto words = run ? attempt_words(*run, kHighestNumber) : std::vector<AttemptWord>{};
    return !words.empty() && may_be_alive(words.front(), {});
  } catch (const Error&) {
    // A directory that cannot be read proves nothing, and the trainer's last save must not be missed.
    return true;
  }
}

bool MirrorRun::a_trainer_began() const {
  const auto run = FileSystem::real().open_directory(request_.directory, false);
  const auto words = run ? attempt_words(*run, kHighestNumber) : std::vector<AttemptWord>{};
  return !words.empty() && words.front().attempt > before_;
}

bool MirrorRun::a_start_fetches() const {
  const auto run = FileSystem::real().open_directory(request_.directory, false);
  const Claimant newest = run ? newest_claimant(*run) : Claimant{};
  return newest.by == kClaimedByMirror && newest.process.pid != own_process().pid && is_here(newest) &&
         is_running(newest.process);
}

void MirrorRun::end_trainer() {
  try {
    const auto run = FileSystem::real().open_directory(request_.directory, false);
    if (!run || !mirror_.record().owns(highest_attempt(*run)) || !trainer_may_save()) return;
    CheckpointStore store(FileSystem::real(), Clock::real(),
                          {.directory = request_.directory, .allow_fresh = true}, verifier_);
    // The trainer looks for newer claims before each commit, finds this one, and ends with 76.
    store.claim(kClaimedByMirror);
    log_warning("the trainer in {} is superseded as well, and ends with 76", request_.directory);
  } catch (const Error& error) {
    log_warning("the trainer in {} goes on, though it is superseded: {}", request_.directory, error.what());
  }
}

// Between two blocks of a copy. Both read or write the same disk, and a save is short.
void MirrorRun::give_way() {
  if (end_ || mirror_.finishing() || preparing_) return;
  // What is not home when the machine ends is lost with its disk, so the limit yields to an announced end.
  trainer_.end_is_announced() ? pace_.lift_limit() : pace_.restore_limit();
  while (!end_ && trainer_.writes()) {
    Clock::real().sleep_for(kWhileItWrites);
    poll();
  }
}

int MirrorRun::mirror() {
  look_at_place();
  hold_copies();
  try {
    if (mirror_.run()) return 0;
  } catch (const MirrorStopped&) {
  }
  // A supervisor asks again and again.
  if (!std::exchange(said_not_home_, true))
    log_warning("the newest checkpoint of {} is not home", request_.directory);
  return static_cast<int>(ExitCode::interrupted);
}

PreparedStart MirrorRun::prepare(StartTries tries) {
  look_at_place();
  hold_starts();
  const Preparing preparing(preparing_);
  return begin(prepare_start_or_go_alone(FileSystem::real(), verifier_, request_.directory, *home_, pace_,
                                         home_wait_, {}, std::move(tries)));
}

PreparedStart MirrorRun::go_alone(StartTries tries) {
  hold_starts();
  const Preparing preparing(preparing_);
  PreparedStart start =
      go_alone_without(FileSystem::real(), verifier_, request_.directory, *home_, pace_, std::move(tries));
  start.claims.clear();  // of earlier processes: add_earlier_claim() has told them
  return begin(std::move(start));
}

PreparedStart MirrorRun::begin(PreparedStart start) {
  // In this order: a claim that is not lower settles the attempt that began alone.
  if (start.alone) mirror_.go_alone(start.attempt);
  mirror_.add_claims(start.claims);
  mirror_.await_trainer(start.attempt);
  return start;
}

}}  // namespace holdfast::v0_2
