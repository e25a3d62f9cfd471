#include "holdfast/interruption/deadline_source.h"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <new>
#include <string>
#include <vector>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/system/machine.h"
#include "holdfast/base/text.h"
#include "holdfast/interruption/internal/announced_end.h"
#include "holdfast/interruption/internal/signal_latch.h"
#include "holdfast/interruption/notice_file.h"
#include "holdfast/interruption/stop_signals.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::string_view kDeadlineName = "deadline";
// The process must be gone by the end, and polls come every second.
constexpr Duration kStopBefore = std::chrono::seconds(2);
constexpr std::size_t kUsr1 = 2;  // its place in kHeardSignals
static_assert(internal::kHeardSignals[kUsr1] == SIGUSR1);
constexpr std::int64_t kLatest = 9'000'000'000;  // seconds since 1970; still fits into 64-bit nanoseconds

SteadyTime after(SteadyTime from, Duration time) {
  return from + std::chrono::duration_cast<SteadyTime::duration>(time);
}

// nullopt if `then` is malformed, or belongs to another boot.
std::optional<Duration> since_uptime(const std::string& then) {
  const std::string now = uptime_here();
  const std::size_t told_ends = then.find('/');
  const std::size_t now_ends = now.find('/');
  if (told_ends == std::string::npos || now_ends == std::string::npos) return std::nullopt;
  const auto told = parse_int(then.substr(0, told_ends));
  const auto here = parse_int(now.substr(0, now_ends));
  if (!told || !here || then.substr(told_ends) != now.substr(now_ends)) return std::nullopt;
  return std::chrono::seconds(*here - *told);
}

}  // namespace

DeadlineSource::DeadlineSource(Clock& clock, const DeadlineOptions& options)
    : clock_(clock),
      lead_(options.lead),
      end_(std::make_unique<internal::AnnouncedEnd>(clock, kDeadlineName, kUnknownNoticeTime)),
      job_end_(options.job_end),
      after_signal_(options.after_signal) {
  if (after_signal_) {
    // The handlers are shared with the SignalSource; both count their users.
    if (!internal::install_signal_handlers(stop_signals())) throw IoError("eventfd", "", errno);
    // Signals that came before this object do not belong to this process's end.
    signals_seen_ = internal::consumed_signals(kUsr1);
  }
  if (!options.max_wall) return;
  // The time before main() counts as well: a scheduler measures from the start of the process.
  const SteadyTime started =
      options.started.value_or(after(clock.now(), -process_age().value_or(Duration::zero())));
  wall_end_ = after(started, *options.max_wall);
}

DeadlineSource::~DeadlineSource() {
  if (after_signal_) internal::remove_signal_handlers();
}

std::vector<Notice> DeadlineSource::poll() {
  std::vector<Notice> news;
  try {
    hear_signal();
    announce(news);
    // Without the job's end: Slurm ends its jobs itself, and nothing else would end this process at the
    // others.
    std::optional<SteadyTime> end = wall_end_;
    if (signal_end_) end = std::min(*signal_end_, end.value_or(*signal_end_));
    // Once: the stop stays latched.
    if (end && !stopped_ && *end - clock_.now() <= kStopBefore) {
      news.push_back({.source = std::string(kDeadlineName),
                      .kind = NoticeKind::stop,
                      .deadline = *end,
                      .text = "the time that this process may take is over",
                      .seen = clock_.now()});
      stopped_ = true;
    }
  } catch (const std::bad_alloc&) {
    // The notice is lost together with the list, so it has to be made again.
    end_->tell_again();
    throw;
  }
  return news;
}

void DeadlineSource::hear_signal() {
  // The first signal names the end, and a repeated one must not move it.
  if (!after_signal_ || signal_end_) return;
  const internal::HeardSignal heard = internal::heard_signal(kUsr1);
  if (heard.count == signals_seen_) return;
  // Handlers use the machine's clock; `clock_` may be another.
  const Duration age = Clock::real().now() - SteadyTime(std::chrono::nanoseconds(heard.first_ns));
  signal_end_ = after(clock_.now(), *after_signal_ - age);
}

void DeadlineSource::announce(std::vector<Notice>& news) {
  const SteadyTime now = clock_.now();
  std::vector<internal::ListedEnd> ends;
  // Earlier announcements would only make the run save too often.
  if (wall_end_ && *wall_end_ - now <= lead_) {
    ends.push_back({.event = "wall", .when = wall_end_, .text = "the time that this process may take ends"});
  }
  // Converted once: the wall clock may be set later, and the notice must not move.
  if (job_end_ && !job_end_seen_) {
    const SteadyTime end = after(now, *job_end_ - clock_.wall_now());
    if (end - now <= lead_) job_end_seen_ = end;
  }
  if (job_end_seen_) ends.push_back({.event = "job", .when = job_end_seen_, .text = "the Slurm job ends"});
  if (signal_end_) {
    ends.push_back(
        {.event = "signal", .when = signal_end_, .text = "SIGUSR1 announced the end of this process"});
  }
  if (!ends.empty()) end_->coming(ends, news);
}

std::optional<Duration> deadline_signal() {
  const auto text = env_text(kEnvDeadlineSignal);
  if (!text) return std::nullopt;
  const std::string variable = "environment variable " + std::string(kEnvDeadlineSignal.name) + "=" + *text;
  // Slurm's own spelling is --signal=USR1@120; people copy it with or without SIG.
  const std::string_view rest = std::string_view(*text).substr(text->starts_with("SIG") ? 3 : 0);
  const auto seconds =
      rest.starts_with("USR1@") ? parse_int(std::string(rest.substr(5))) : std::optional<std::int64_t>();
  // Slurm's limit for the time before the end.
  if (!seconds || *seconds < 1 || *seconds > 65535) {
    throw UsageError(variable +
                     ": expected USR1@ and the seconds from the signal to the end, such as USR1@120");
  }
  if (stop_signals().has(SIGUSR1)) {
    throw UsageError(variable + ": " + kEnvStopSignals.name +
                     " makes USR1 a stop; name it in one of the two");
  }
  return std::chrono::seconds(*seconds);
}

std::string uptime_here() {
  // With the boot's identity: uptime of another boot is another clock. It includes sleep, like
  // CLOCK_BOOTTIME.
  timespec now{};
  if (boot_id().empty() || clock_gettime(CLOCK_BOOTTIME, &now) != 0) return {};
  return std::to_string(now.tv_sec) + "/" + boot_id();
}

std::optional<SteadyTime> supervised_since(const Clock& clock) {
  const auto seconds = env_int(kEnvSupervisedSince, 1, kLatest);
  if (!seconds) return std::nullopt;
  const Duration ago = since_uptime(env_text(kEnvSupervisedUptime).value_or(""))
                           .value_or(clock.wall_now() - WallTime{std::chrono::seconds(*seconds)});
  // A supervisor cannot have started after its child: a clock was set back.
  if (ago < process_age().value_or(Duration::zero())) return std::nullopt;
  return after(clock.now(), -ago);
}

std::optional<WallTime> slurm_job_end(const Clock& clock) {
  const auto text = env_text(kEnvSlurmJobEnd);
  if (!text) return std::nullopt;
  const auto seconds = parse_int(*text);
  if (!seconds || *seconds <= 0 || *seconds > kLatest) {
    log_warning("{}={} is not a time in seconds since 1970; ignored", kEnvSlurmJobEnd.name, *text);
    return std::nullopt;
  }
  const WallTime end{std::chrono::seconds(*seconds)};
  // One that has passed is a leftover of a shell.
  if (end > clock.wall_now()) return end;
  log_warning("{} names {}, which has passed, and is ignored", kEnvSlurmJobEnd.name, format_utc(end));
  return std::nullopt;
}

}}  // namespace holdfast::v0_2
