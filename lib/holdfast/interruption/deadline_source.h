// The end of a process's time: `max_wall` from its start, the end of its Slurm job, or a time after a SIGUSR1
// that announces it (HOLDFAST_DEADLINE_SIGNAL=USR1@120). The earliest counts.
//
// Ten minutes before, or at once if less is left, it sends a notice of kind `deadline`: the run commits,
// trains on, and commits again in time. At the end of `max_wall`, or of the time that a signal announced, it
// sends a `stop`, so that the process leaves with 75. Slurm ends its jobs itself.
// docs/interruption_sources.md#deadline has the details.
//
// Environment, read by make_sources(): SLURM_JOB_END_TIME, HOLDFAST_DEADLINE_SIGNAL,
// HOLDFAST_SUPERVISED_SINCE, HOLDFAST_SUPERVISED_UPTIME. A past or malformed job end is logged and ignored.
// Errors: the constructor throws IoError without an eventfd (after_signal); poll() throws only bad_alloc.
// Threads: as source.h says.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "holdfast/interruption/source.h"

namespace holdfast { inline namespace v0_2 {
namespace internal {
class AnnouncedEnd;
}

struct DeadlineOptions {
  std::optional<Duration> max_wall = {};      // unset: no limit
  std::optional<SteadyTime> started = {};     // start of the process; unset: as the system reports it
  std::optional<WallTime> job_end = {};       // end of the Slurm job
  std::optional<Duration> after_signal = {};  // from SIGUSR1 to the end; unset: SIGUSR1 announces nothing
  Duration lead = std::chrono::minutes(10);   // announcement before the end; enough for a slow commit
};

class DeadlineSource final : public Source {
 public:
  explicit DeadlineSource(Clock& clock, const DeadlineOptions& options);
  ~DeadlineSource() override;

  std::string_view name() const override { return "deadline"; }
  std::vector<Notice> poll() override;
  Duration interval() const override { return std::chrono::seconds(1); }

 private:
  void hear_signal();
  void announce(std::vector<Notice>& news);

  Clock& clock_;
  const Duration lead_;
  std::unique_ptr<internal::AnnouncedEnd> end_;
  std::optional<SteadyTime> wall_end_;
  std::optional<WallTime> job_end_;
  std::optional<SteadyTime> job_end_seen_;  // its time when it came within `lead`
  const std::optional<Duration> after_signal_;
  std::uint32_t signals_seen_ = 0;        // when this object was made
  std::optional<SteadyTime> signal_end_;  // of the first signal since then
  bool stopped_ = false;                  // the `stop` was sent
};

// SLURM_JOB_END_TIME, if it is a moment in the future.
std::optional<WallTime> slurm_job_end(const Clock& clock);
// The time of HOLDFAST_DEADLINE_SIGNAL. Throws UsageError if it is malformed, or if HOLDFAST_STOP_SIGNALS
// names the same signal.
std::optional<Duration> deadline_signal();
// The current value for HOLDFAST_SUPERVISED_UPTIME. Empty if unknown.
std::string uptime_here();
// When the supervisor started. HOLDFAST_SUPERVISED_UPTIME counts if it belongs to this boot, because the wall
// clock may be set meanwhile; otherwise HOLDFAST_SUPERVISED_SINCE. nullopt if neither is set, or if the time
// is in the future. Throws UsageError for a malformed time.
std::optional<SteadyTime> supervised_since(const Clock& clock);

}}  // namespace holdfast::v0_2
