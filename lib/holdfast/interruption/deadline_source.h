// The end of the time that a process may have, on the wall clock: `max_wall` counted from its start, and the
// end of its Slurm job (SLURM_JOB_END_TIME, seconds since 1970, which Slurm sets in every job). The earlier
// one counts.
//
// Ten minutes before it (or at once, when less is left at the start) a notice of kind `deadline`: the run
// commits, trains on, and commits again in time. At the end of `max_wall` a `stop`, as nothing else would end
// the process: exit code 75. Slurm ends its jobs itself, with a SIGTERM; its end is only announced.
//
// A job's end that has passed when the process starts (a variable left over in a shell) is none, and is said.
// One that cannot be read is not a reason to refuse a start: it is said and ignored.
//
// Environment: SLURM_JOB_END_TIME, read by the maker (sources.h).
// Threads: as source.h says. Errors: poll() throws bad_alloc only.
#pragma once

#include <memory>
#include <optional>

#include "holdfast/interruption/source.h"

namespace holdfast::inline v1 {
namespace internal {
class AnnouncedEnd;
}

struct DeadlineOptions {
  std::optional<Duration> max_wall = {};
  std::optional<SteadyTime> started = {};  // of the process; absent: as the system knows it
  std::optional<WallTime> job_end = {};
  Duration lead = std::chrono::minutes(10);
};

class DeadlineSource final : public Source {
 public:
  explicit DeadlineSource(Clock& clock, const DeadlineOptions& options);
  ~DeadlineSource() override;

  std::string_view name() const override { return "deadline"; }
  std::vector<Notice> poll() override;
  Duration interval() const override { return std::chrono::seconds(1); }

 private:
  void announce(std::vector<Notice>& news);

  Clock& clock_;
  const Duration lead_;
  std::unique_ptr<internal::AnnouncedEnd> end_;
  std::optional<SteadyTime> wall_end_;
  std::optional<WallTime> job_end_;
  std::optional<SteadyTime> job_end_seen_;  // as it was when it came near
  bool wall_over_ = false;
};

// SLURM_JOB_END_TIME, where it holds a moment that is still to come.
std::optional<WallTime> slurm_job_end(const Clock& clock);

}  // namespace holdfast::inline v1
