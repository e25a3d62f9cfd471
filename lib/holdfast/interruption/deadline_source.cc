#include "holdfast/interruption/deadline_source.h"

#include <string>
#include <utility>

#include "holdfast/base/env.h"
#include "holdfast/base/log.h"
#include "holdfast/base/machine.h"
#include "holdfast/base/text.h"

namespace holdfast::inline v1 {
namespace {

constexpr std::string_view kName = "deadline";
// The process is to be gone by the end, and a poll comes every second.
constexpr Duration kStopBefore = std::chrono::seconds(2);
constexpr std::int64_t kLatest = 9'000'000'000;  // seconds since 1970: in nanoseconds it still fits

SteadyTime after(SteadyTime from, Duration time) {
  return from + std::chrono::duration_cast<SteadyTime::duration>(time);
}

}  // namespace

DeadlineSource::DeadlineSource(Clock& clock, const DeadlineOptions& options)
    : clock_(clock), lead_(options.lead), job_end_(options.job_end) {
  if (!options.max_wall) return;
  const SteadyTime started =
      options.started.value_or(after(clock.now(), -process_age().value_or(Duration::zero())));
  wall_end_ = after(started, *options.max_wall);
}

std::vector<Notice> DeadlineSource::poll() {
  std::vector<Notice> news;
  if (wall_end_) {
    if (auto notice = announce(*wall_end_, wall_told_, "the time that this process may take ends")) {
      news.push_back(std::move(*notice));
    }
    if (!wall_over_ && *wall_end_ - clock_.now() <= kStopBefore) {
      news.push_back({.source = std::string(kName),
                      .kind = NoticeKind::stop,
                      .deadline = *wall_end_,
                      .text = "the time that this process may take is over",
                      .seen = clock_.now()});
      wall_over_ = true;
    }
  }
  if (job_end_ && !job_told_) {
    const SteadyTime end = after(clock_.now(), *job_end_ - clock_.wall_now());
    if (auto notice = announce(end, job_told_, "the Slurm job ends")) news.push_back(std::move(*notice));
  }
  return news;
}

std::optional<Notice> DeadlineSource::announce(SteadyTime end, bool& told, const char* what) {
  if (told || end - clock_.now() > lead_) return std::nullopt;
  Notice notice{.source = std::string(kName),
                .kind = NoticeKind::deadline,
                .deadline = end,
                .text = what,
                .seen = clock_.now()};
  told = true;
  return notice;
}

std::optional<WallTime> slurm_job_end(const Clock& clock) {
  const auto text = env_text(kEnvSlurmJobEnd);
  if (!text) return std::nullopt;
  const auto seconds = parse_int(*text);
  if (!seconds || *seconds <= 0 || *seconds > kLatest) {
    log_warning("{}={} is no time in seconds since 1970 and is ignored", kEnvSlurmJobEnd.name, *text);
    return std::nullopt;
  }
  const WallTime end{std::chrono::seconds(*seconds)};
  if (end > clock.wall_now()) return end;
  log_warning("{} names {}, which has passed, and is ignored", kEnvSlurmJobEnd.name, format_utc(end));
  return std::nullopt;
}

}  // namespace holdfast::inline v1
