#include "holdfast/checkpoint/internal/announced.h"

#include <algorithm>
#include <utility>

#include "holdfast/base/log.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

std::optional<SteadyTime> earlier(std::optional<SteadyTime> one, std::optional<SteadyTime> other) {
  if (!one || !other) return one ? one : other;
  return std::min(*one, *other);
}

}  // namespace

void Announced::others_end(std::optional<Notice> end) {
  const MutexLock lock(mutex_);
  // An end that only comes earlier is still the same notice, and keeps the answer to it.
  if (end_ && end && *end->deadline < *end_->deadline) end->seen = end_->seen;
  end_ = std::move(end);
}

std::optional<SteadyTime> Announced::others_end() const {
  const MutexLock lock(mutex_);
  return end_ ? end_->deadline : std::nullopt;
}

void Announced::others_sleep(std::optional<Notice> sleep) {
  const MutexLock lock(mutex_);
  sleep_ = std::move(sleep);
}

bool Announced::others_sleep() const {
  const MutexLock lock(mutex_);
  return sleep_.has_value();
}

void Announced::others_stop(Notice stop) {
  // Deadlines that this machine has outlived count no more either.
  monitor_.dismiss(*stop.seen);

  const MutexLock lock(mutex_);
  stop_ = std::move(stop);
}

bool Announced::stop_requested() const noexcept {
  if (monitor_.stop_requested()) return true;
  const MutexLock lock(mutex_);
  return stop_.has_value();
}

// A notice of hibernation counts only if there is no other.
std::optional<Notice> Announced::standing() const {
  std::optional<Notice> own = monitor_.standing();
  const MutexLock lock(mutex_);
  if (end_ && (!own || own->hibernates || *end_->deadline < *own->deadline)) return end_;
  return own ? own : sleep_;
}

std::optional<SteadyTime> Announced::earliest_of_others(const Monitor::Which& which) const noexcept {
  const std::optional<SteadyTime> own_stop = monitor_.stop_seen();
  const MutexLock lock(mutex_);
  const std::optional<SteadyTime> stopped = earlier(own_stop, stop_ ? stop_->seen : std::nullopt);
  std::optional<SteadyTime> earliest;
  for (const auto* const notice : {&end_, &sleep_, &stop_}) {
    if (!*notice || !Monitor::counts(which, **notice)) continue;
    const auto& deadline = (*notice)->deadline;
    // An end that had passed when the stop came did not end the machine.
    if (!(stopped && deadline && *deadline <= *stopped)) earliest = earlier(earliest, deadline);
  }
  return earliest;
}

std::optional<SteadyTime> Announced::deadline() const noexcept {
  return earlier(monitor_.deadline(), earliest_of_others({}));
}

std::optional<SteadyTime> Announced::named_deadline() const noexcept {
  return earlier(monitor_.named_deadline(), earliest_of_others({.named = true}));
}

std::optional<SteadyTime> Announced::earliest(const Monitor::Which& which) const noexcept {
  return earlier(monitor_.earliest_deadline(which), earliest_of_others(which));
}

std::optional<Duration> Announced::time_left(SteadyTime now) const noexcept {
  const auto end = deadline();
  if (!end) return std::nullopt;
  return time_until(*end, now);
}

void Announced::dismiss(SteadyTime until, bool woken) {
  monitor_.dismiss(until, woken);
  const MutexLock lock(mutex_);
  if (end_ && *end_->deadline <= until) end_.reset();
  if (sleep_ && (woken || *sleep_->deadline <= until)) sleep_.reset();
}

void Announced::drop_outlived(SteadyTime now) {
  while (const std::optional<Notice> notice = standing()) {
    if (now < *notice->deadline + kAliveAfter) return;
    log_info("the machine lives {} after its end was due ({}): the run goes on",
             format_duration(now - *notice->deadline), notice->text);
    dismiss(now - kAliveAfter);
  }
}

std::string Announced::reason() const {
  if (monitor_.stop_requested()) return monitor_.reason();
  {
    const MutexLock lock(mutex_);
    if (stop_) return stop_->text;
  }
  const std::optional<Notice> notice = standing();
  return notice ? notice->text : std::string();
}

}}}  // namespace holdfast::v0_2::internal
