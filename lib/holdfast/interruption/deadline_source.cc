#include "holdfast/interruption/deadline_source.h"

#include <ctime>
#include <new>
#include <string>
#include <vector>

#include "holdfast/base/env.h"
#include "holdfast/base/log.h"
#include "holdfast/base/machine.h"
#include "holdfast/base/text.h"
#include "holdfast/interruption/internal/announced_end.h"
#include "holdfast/interruption/notice_file.h"

namespace holdfast { inline namespace v1 {
namespace {

constexpr std::string_view kDeadlineName = "deadline";
// The process must be gone by the end, and polls come every second.
constexpr Duration kStopBefore = std::chrono::seconds(2);
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
      job_end_(options.job_end) {
  if (!options.max_wall) return;
  const SteadyTime started =
      options.started.value_or(after(clock.now(), -process_age().value_or(Duration::zero())));
  wall_end_ = after(started, *options.max_wall);
}

DeadlineSource::~DeadlineSource() = default;

std::vector<Notice> DeadlineSource::poll() {
  std::vector<Notice> news;
  try {
    announce(news);
    if (wall_end_ && !wall_over_ && *wall_end_ - clock_.now() <= kStopBefore) {
      news.push_back({.source = std::string(kDeadlineName),
                      .kind = NoticeKind::stop,
                      .deadline = *wall_end_,
                      .text = "the time that this process may take is over",
                      .seen = clock_.now()});
      wall_over_ = true;
    }
  } catch (const std::bad_alloc&) {
    end_->tell_again();
    throw;
  }
  return news;
}

void DeadlineSource::announce(std::vector<Notice>& news) {
  const SteadyTime now = clock_.now();
  std::vector<internal::ListedEnd> ends;
  if (wall_end_ && *wall_end_ - now <= lead_) {
    ends.push_back({.event = "wall", .when = wall_end_, .text = "the time that this process may take ends"});
  }
  // Converted once: the wall clock may be set later, and the notice must not move.
  if (job_end_ && !job_end_seen_) {
    const SteadyTime end = after(now, *job_end_ - clock_.wall_now());
    if (end - now <= lead_) job_end_seen_ = end;
  }
  if (job_end_seen_) ends.push_back({.event = "job", .when = job_end_seen_, .text = "the Slurm job ends"});
  if (!ends.empty()) end_->coming(ends, news);
}

std::string uptime_here() {
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
  if (end > clock.wall_now()) return end;
  log_warning("{} names {}, which has passed, and is ignored", kEnvSlurmJobEnd.name, format_utc(end));
  return std::nullopt;
}

}}  // namespace holdfast::v1
