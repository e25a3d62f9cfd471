#include "holdfast/cli/supervise/supervisor.h"

#include <unistd.h>

#include <algorithm>
#include <set>
#include <system_error>
#include <utility>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/cli/durations.h"
#include "holdfast/cli/files/examine.h"
#include "holdfast/cli/mirror/mirror_process.h"
#include "holdfast/cli/run/announced_ends.h"
#include "holdfast/cli/supervise/predecessor.h"
#include "holdfast/interruption/deadline_source.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using namespace std::chrono_literals;

// Without a directory nothing tells whether a life made progress, so a life this long counts as progress. A
// rank that waits in vain for a host that has given up lives for ten minutes (ProcessGroup's start_timeout).
constexpr Duration kLongLife = 20min;
constexpr Duration kLookAtSteps = 5s;    // a trainer records its step every 10 s
constexpr Duration kAnswerToAStop = 5s;  // timeout of a directory once somebody asked to stop
constexpr int kFailed = static_cast<int>(ExitCode::internal);

std::int64_t seconds_since_1970() {
  return std::chrono::floor<std::chrono::seconds>(Clock::real().wall_now().time_since_epoch()).count();
}

std::optional<Duration> stall_limit(const SuperviseRequest& options) {
  if (options.stall_timeout.empty()) return std::nullopt;
  return duration_of("--stall-timeout", options.stall_timeout);
}

std::string kernels_folder(const std::filesystem::path& directory) {
  if (directory.empty()) return env_text(kEnvKernelCache).value_or("");
  return (std::filesystem::absolute(directory) / kKernelsDirectory).string();
}

// srun does not pass SIGTERM on: it kills its tasks at once. It passes on SIGUSR2.
int stop_signal_for(const std::vector<std::string>& command) {
  const bool is_srun = std::filesystem::path(command.front()).filename() == "srun";
  return is_srun && stop_signals().has(SIGUSR2) ? SIGUSR2 : SIGTERM;
}

// False if no thread can be made: training may use all threads that its limits allow, and must not end for
// that.
template <class Result, class Read>
bool begin(std::optional<Lookup<Result>>& looking, const Read& read) {
  try {
    looking.emplace(read);
    return true;
  } catch (const std::system_error&) {
    return false;
  }
}

}  // namespace

Supervisor::Supervisor(const SuperviseRequest& options, MirrorProcess* mirror)
    : options_(options),
      mirror_(mirror),
      policy_({.max_restarts = options.max_restarts,
               .first_delay = duration_of("--first-delay", options.first_delay),
               .after_deadline = duration_of("--after-deadline", options.after_deadline),
               .retry_volume = duration_of("--retry-volume", options.retry_volume)}),
      hook_options_{.limit = duration_of("--hook-timeout", options.hook_timeout),
                    .first_delay = duration_of("--first-delay", options.first_delay)},
      slurm_job_(options.requeue_slurm ? std::optional(this_slurm_job()) : std::nullopt),
      directory_timeout_(duration_of("--directory-timeout", options.directory_timeout)),
      since_(seconds_since_1970()),
      uptime_(uptime_here()),
      stop_signal_(stop_signal_for(options.command)),
      signalled_time_(deadline_signal()),
      stands_by_(options.standby),
      stall_watch_(stall_limit(options)) {
  watches_steps_ = !options.directory.empty() && stall_limit(options) != Duration::zero();
  if (watches_steps_) tail_ = std::make_shared<LedgerTail>(options.directory);
}

int Supervisor::run() {
  RunNews before = news();
  // A trainer without its supervisor may still commit. A second one beside it would fence it off and lose
  // that work.
  // A standby does the holder no harm.
  if (const auto orphan = stands_by_ ? std::nullopt : orphaned_trainer(before)) {
    if (!end_orphan(*orphan, to_text(before.attempts.front()))) {
      return give_up(kFailed, "the trainer of a supervisor that was killed does not end");
    }
    before = news();
  }
  if (asked_to_stop_) return end(static_cast<int>(ExitCode::interrupted), true);
  for (;; before = news()) {
    // A standby's trainer claims HOME by itself, when the run is free.
    if (const auto refused = stands_by_ ? std::nullopt : prepare()) return *refused;
    account_.begin(before);
    const SteadyTime began = Clock::real().now();
    // The beginning in uptime as well, because a machine's wall clock may be set.
    AttendedChild child(options_.command,
                        {{kEnvSupervisor.name, account_.life()},
                         {kEnvSupervisedSince.name, std::to_string(since_)},
                         {kEnvSupervisedUptime.name, uptime_},
                         {kEnvMirrorHome.name, options_.mirror},
                         {kEnvKernelCache.name, kernels_folder(options_.directory)},
                         {kEnvStandby.name, stands_by_ ? "1" : ""},
                         {kEnvTakeoverAfter.name, stands_by_ ? options_.takeover_after : ""}},
                        inbox_);
    if (child.id() > 0) log_info("supervising process {}", static_cast<std::int64_t>(child.id()));
    const Attended attended = attend(child);
    if (!attended.all_ended) {
      return give_up(child.ending().code() != 0 ? child.ending().code() : kFailed,
                     "processes of the command do not end at SIGKILL");
    }
    const RunNews after = news();
    stands_by_ = stands_by_ && !account_.has_claimed(after);
    Judgement life = judge(child.ending(), after, began);
    if (!attended.stood_still.empty()) {
      life.remark = attended.stood_still + "; " + (life.remark.empty() ? to_text(life.ending) : life.remark);
    }
    const RestartDecision verdict = policy_.after({.ending = life.ending,
                                                   .ended = Clock::real().now(),
                                                   .asked_to_stop = asked_to_stop_,
                                                   .progress = life.progress,
                                                   .stood_still = !attended.stood_still.empty(),
                                                   .time_is_over = time_is_over(after),
                                                   .handed_over = life.handed_over,
                                                   .remark = life.remark,
                                                   .deadline_left = time_left(after)});
    log_info(verdict.text);
    if (life.complete) return complete();
    if (verdict.resumable && slurm_job_) return end(verdict.code, true);
    if (verdict.gave_up) return give_up(verdict.code, verdict.text);
    if (!verdict.restart) return end(life.ending.code(), false);
    pause(child, verdict.delay, life.handed_over);
    // Another machine may have claimed the run during the delay.
    const RunNews now = news();
    if (asked_to_stop_) {
      log_info("asked to stop while nothing ran; not started again");
      return end(life.ending.code(), true);
    }
    if (const AttemptWord* const other = stands_by_ ? nullptr : account_.newer_attempt(now)) {
      log_info("{} has taken the run over; not started again", to_text(*other));
      return give_up(static_cast<int>(ExitCode::superseded), to_text(*other) + " has taken the run over");
    }
  }
}

// Handles signals meanwhile. A read that hangs is left behind, and no second one begins before it has ended.
RunNews Supervisor::news() {
  if (options_.directory.empty()) return {};
  RunNews none{.silence = shown(options_.directory) + " does not answer"};
  if (looking_ && !answered(*looking_)) return none;
  if (!begin(looking_, [directory = options_.directory, since = account_.since()] {
        return read_run_news(directory, since);
      })) {
    none.silence = "no thread can be made that reads " + shown(options_.directory);
    log_warning("{} (ulimit -u, pids.max?); going on without it", none.silence);
    return none;
  }
  if (!answered(*looking_)) {
    log_warning("{} (a mount whose server is gone?); going on without it", none.silence);
    return none;
  }
  RunNews found = looking_->take();
  looking_.reset();
  return found;
}

bool Supervisor::answered(const Lookup<RunNews>& looking) {
  const SteadyTime began = Clock::real().now();
  bool said = false;
  while (!looking.ready()) {
    const Duration waited = Clock::real().now() - began;
    if (waited >= kNormalAnswer && !std::exchange(said, true)) {
      log_info("waiting for {} to answer, for {} at most", shown(options_.directory),
               format_duration(directory_timeout_));
    }
    if (waited >= directory_timeout_ || (asked_to_stop_ && waited >= kAnswerToAStop)) return false;
    heard(inbox_.wait(waited < 100ms ? 1ms : 20ms), nullptr);
  }
  return true;
}

// Without a directory it takes the command's exit code as it is, and a long life as progress.
Judgement Supervisor::judge(const Ending& ending, const RunNews& after, SteadyTime began) {
  if (stands_by_) return judge_standby(ending, after, mirror_ != nullptr);
  if (!options_.directory.empty()) return account_.end(ending, after);
  return {.ending = ending, .progress = Clock::real().now() - began >= kLongLife};
}

// Keeps an earlier deadline: a life that was too short to get the notice again does not withdraw it.
std::optional<Duration> Supervisor::time_left(const RunNews& after) {
  if (after.deadline) deadline_ = after.deadline;
  if (!deadline_) return std::nullopt;
  return *deadline_ - Clock::real().now();
}

bool Supervisor::time_is_over(const RunNews& after) const {
  // A process that outlives its announced end by that much was not ended, so the notice no longer counts.
  if (own_end_ && Clock::real().now() < *own_end_ + kAliveAfter) return true;
  return after.time_is_over && !after.attempts.empty() && account_.is_of_this_life(after.attempts.front());
}

// Forwards the signal. True if it asks to stop.
bool Supervisor::heard(const std::optional<int>& signal, const AttendedChild* child) {
  if (!signal) return false;
  if (*signal == SIGUSR1 && signalled_time_ && !own_end_) own_end_ = Clock::real().now() + *signalled_time_;
  const bool stop = *signal == SIGTERM || *signal == SIGINT;
  asked_to_stop_ |= stop;
  if (stop && stops_++ == 0) first_stop_ = Clock::real().now();
  if (child != nullptr) child->send(*signal == SIGTERM ? stop_signal_ : *signal);
  return stop;
}

Supervisor::Attended Supervisor::attend(AttendedChild& child) {
  Attended attended;
  std::optional<SteadyTime> told;  // when it was told to end, because its step stood still
  bool killed = false;
  stall_watch_.begin();
  while (!child.ended()) {
    // No signal tells that a read has ended, so it is asked for often while one is under way.
    const bool looking = looking_at_ledger_.has_value();
    if (heard(inbox_.wait(looking ? 20ms : 1s), &child)) {
      log_info("passed on to process {}; waiting for it to commit and leave",
               static_cast<std::int64_t>(child.id()));
    }
    if (!told && !asked_to_stop_) {
      if (auto stall = look_for_stall()) {
        attended.stood_still = stall->why;
        stall->processes = with_descendants(children_of(getpid()));
        keep_stall_evidence(*stall, [&] { heard(inbox_.wait(20ms), &child); });
        log_warning("{}: it gets SIGTERM, and {} to commit and leave", stall->why,
                    format_duration(time_to_leave()));
        // A stop that came meanwhile was passed on.
        if (!asked_to_stop_) child.send(stop_signal_);
        told = Clock::real().now();
      }
    }
    // answer() also takes in the message that another machine has claimed HOME, so it is asked even if no
    // answer is awaited.
    if (mirror_ != nullptr && !told && !mirror_->answer() && !mirror_->superseded_by().empty()) {
      log_warning("another machine has taken the run over: the trainer gets SIGTERM");
      child.send(stop_signal_);
      told = Clock::real().now();
    }
    if (told && !killed && Clock::real().now() >= *told + time_to_leave()) {
      log_warning("it is still there; it is killed");
      killed = true;
      child.send_to_all(SIGKILL);
    }
  }
  attended.all_ended = child.all_ended() || clear(child);
  return attended;
}

// Reads the ledger of the command's own newest attempt, while signals are handled. A read that hangs (the
// volume is gone) proves nothing, so it ends no trainer.
std::optional<Stall> Supervisor::look_for_stall() {
  if (!watches_steps_) return std::nullopt;
  const SteadyTime now = Clock::real().now();
  if (!looking_at_ledger_) {
    if (now < next_look_) return std::nullopt;
    next_look_ = now + std::min<Duration>(kLookAtSteps, stall_watch_.limit() / 4);
    if (!begin(looking_at_ledger_, [tail = tail_] { return tail->read_new_lines(); })) return std::nullopt;
  }
  if (!looking_at_ledger_->ready()) return std::nullopt;
  const LedgerTail::News found = looking_at_ledger_->take();
  looking_at_ledger_.reset();
  if (found.another) stall_watch_.begin();
  stall_watch_.hear(found.lines);
  if (!account_.is_of_this_life(found.newest)) return std::nullopt;
  const auto stood = stall_watch_.standing();
  if (!stood || *stood < stall_watch_.limit()) return std::nullopt;
  return Stall{.by = "holdfast supervise",
               .why = "step " + std::to_string(stall_watch_.step()) + " has stood still for " +
                      format_duration(*stood),
               .directory = options_.directory,
               .attempt = found.newest.attempt};
}

// A launcher died and its trainer did not. Ends the trainer, because two must not run at once.
bool Supervisor::clear(AttendedChild& child) {
  const Duration limit = time_to_leave();
  log_info("the command ({}) has left processes behind: they get SIGTERM, and {} to commit and leave",
           to_text(child.ending()), format_duration(limit));
  const SteadyTime end = Clock::real().now() + limit;
  child.send_to_all(SIGTERM);
  std::set<pid_t> told;
  while (!child.all_ended() && Clock::real().now() < end) {
    for (const pid_t process : child.left_behind()) {
      if (told.insert(process).second) kill(process, SIGTERM);
    }
    heard(inbox_.wait(20ms), &child);
  }
  if (child.all_ended()) return true;
  log_warning("they are still there; they are killed");
  if (child.end_all()) return true;
  // Otherwise its destructor would try for ten seconds more to end them.
  child.leave_alone();
  log_error(
      "they do not end at SIGKILL (a volume that does not answer?); not started again: two trainers must "
      "not run side by side");
  return false;
}

// False if it cannot be ended.
bool Supervisor::end_orphan(const ProcessIdentity& trainer, const std::string& attempt) {
  const Duration limit = time_to_leave();
  log_info(
      "process {} of {} still runs, and its supervisor does not: it gets SIGTERM, and {} to commit and "
      "leave",
      trainer.pid, attempt, format_duration(limit));
  if (!signal_process(trainer, SIGTERM) && is_running(trainer)) {
    // The claim of the next start fences it off.
    log_warning("process {} does not take a signal from this user; its run is taken over", trainer.pid);
    return true;
  }
  const auto gone_in = [&](Duration patience) {
    const SteadyTime end = Clock::real().now() + patience;
    while (is_running(trainer) && Clock::real().now() < end) {
      heard(inbox_.wait(20ms), nullptr);
    }
    return !is_running(trainer);
  };
  if (gone_in(limit)) return true;
  log_warning("process {} is still there; it is killed", trainer.pid);
  signal_process(trainer, SIGKILL);
  if (gone_in(10s)) return true;
  log_error(
      "process {} does not end at SIGKILL (a volume that does not answer?); not started: two trainers must "
      "not run side by side",
      trainer.pid);
  return false;
}

// Processes that the last command left behind may end meanwhile, and must be reaped.
// Ends early if it waits for a standby to take over, and one has.
void Supervisor::pause(AttendedChild& last, Duration delay, bool for_standby) {
  const SteadyTime end = Clock::real().now() + delay;
  SteadyTime look = Clock::real().now() + kLookAtSteps;
  while (!asked_to_stop_ && Clock::real().now() < end) {
    heard(inbox_.wait(std::min<Duration>(end - Clock::real().now(), 1s)), &last);
    last.ended();
    // answer() takes in the message that another machine has claimed HOME.
    if (mirror_ != nullptr && !mirror_->answer() && !mirror_->superseded_by().empty()) return;
    if (!for_standby || Clock::real().now() < look) continue;
    look = Clock::real().now() + kLookAtSteps;
    const RunNews now = news();
    if (account_.newer_attempt(now) != nullptr) return;
  }
}

HookContext Supervisor::context(const char* hook, int code, const std::string& reason) const {
  HookContext context{.hook = hook,
                      .directory = options_.directory.string(),
                      .step = account_.durable_step(),
                      .exit_code = code,
                      .reason = reason};
  if (deadline_) {
    context.deadline = Clock::real().wall_now() +
                       std::chrono::duration_cast<WallTime::duration>(*deadline_ - Clock::real().now());
  }
  return context;
}

// Another job may continue the run.
int Supervisor::put_back(int code) {
  if (!slurm_job_) return code;
  const HookContext why = context("requeue-slurm", code, "the job goes back to its queue");
  if (requeue(*slurm_job_, why, inbox_)) return code;
  return run_on_give_up(code, "Slurm job " + slurm_job_->name + " could not be requeued");
}

// The run is not complete. Whatever the command ended with: the code of a run that another machine has taken
// over tells every wrapper not to start it again, which would end that machine.
int Supervisor::end(int code, bool back_to_queue) {
  if (bring_home() == static_cast<int>(ExitCode::superseded)) {
    return run_on_give_up(static_cast<int>(ExitCode::superseded), "another machine has taken the run over");
  }
  return back_to_queue ? put_back(code) : code;
}

int Supervisor::complete() {
  if (const int away = bring_home(); away != 0) {
    log_error("the run is complete, but its last checkpoint is not home: --on-complete does not run");
    return away == static_cast<int>(ExitCode::interrupted) ? put_back(away) : away;
  }
  if (options_.on_complete.empty()) return 0;
  const std::string what = "the run is complete at step " + std::to_string(account_.durable_step());
  log_info("{}; running --on-complete", what);
  if (run_end_hook(options_.on_complete, context("on-complete", 0, what), hook_options_, inbox_)) return 0;
  log_error("--on-complete failed; the run itself is complete");
  return kFailed;
}

int Supervisor::give_up(int code, const std::string& reason) {
  const int home = bring_home();
  return run_on_give_up(home == static_cast<int>(ExitCode::superseded) ? home : code, reason);
}

int Supervisor::run_on_give_up(int code, const std::string& reason) {
  if (options_.on_give_up.empty()) return code;
  log_info("giving up; running --on-give-up");
  run_end_hook(options_.on_give_up, context("on-give-up", code, reason), hook_options_, inbox_);
  return code;
}

}}  // namespace holdfast::v0_2
