#include "holdfast/interruption/monitor.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <new>
#include <system_error>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/base/thread/block_signals.h"
#include "holdfast/interruption/notice_file.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// Reserved space, so that announcing needs no memory. More sources than this are rare.
constexpr std::size_t kUsualSources = 16;

constexpr std::int64_t kNoDeadline = std::numeric_limits<std::int64_t>::max();

std::int64_t nanoseconds(SteadyTime time) {
  return std::chrono::duration_cast<Duration>(time.time_since_epoch()).count();
}

std::optional<SteadyTime> steady_time(std::int64_t nanoseconds) {
  if (nanoseconds == kNoDeadline) return std::nullopt;
  return SteadyTime(std::chrono::duration_cast<SteadyTime::duration>(Duration(nanoseconds)));
}

void lower(std::optional<SteadyTime>& earliest, SteadyTime when) {
  earliest = std::min(earliest.value_or(when), when);
}

}  // namespace

Monitor::Monitor(Clock& clock) : clock_(clock), deadline_(kNoDeadline), named_deadline_(kNoDeadline) {
  // Beyond this space an announcement needs memory, which may be missing at that moment.
  announced_.reserve(kUsualSources);
}

Monitor::~Monitor() { stop(); }

void Monitor::add(std::unique_ptr<Source> source) { sources_.push_back(std::move(source)); }

void Monitor::listen(std::function<void(const Notice&)> listener) { listener_ = std::move(listener); }

void Monitor::start() {
  if (stop_event_ >= 0) throw Error("Monitor::start was called twice");
  stop_event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (stop_event_ < 0) throw IoError("eventfd", "", errno);
  const BlockSignals block;
  try {
    for (const auto& source : sources_) {
      // A source that failed in its first poll is off, so it needs no thread.
      if (!source->may_block() && !poll(*source)) continue;
      threads_.emplace_back([this, &watched = *source] { watch(watched); });
    }
  } catch (const std::system_error& error) {
    stop();
    throw Error(std::string("cannot start a thread that listens for interruptions: ") + error.what() +
                "; raise the limit of processes (ulimit -u)");
  } catch (...) {
    stop();  // the listener's objects may be destroyed before the monitor
    throw;
  }
}

void Monitor::stop() noexcept {
  if (!process_.is_this_one()) {
    let_go();
    return;
  }
  if (stop_event_ < 0) return;
  // The event comes before cancel(), so that no thread begins another poll after a cancelled one.
  eventfd_write(stop_event_, 1);
  // Wakes threads that wait for an answer of a service.
  for (const auto& source : sources_) source->cancel();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  close(std::exchange(stop_event_, -1));
}

// A forked child shares the eventfd with the parent's threads, and the sources were in use at the fork.
void Monitor::let_go() noexcept {
  for (std::thread& thread : threads_) abandon(thread);
  threads_.clear();
  for (auto& source : sources_) leave_to_parent(source);
  sources_.clear();
  stop_event_ = -1;
}

bool Monitor::take_checkpoint_request() noexcept {
  return (flags_.fetch_and(~kCheckpoint) & kCheckpoint) != 0;
}

bool Monitor::take_risk() noexcept { return (flags_.fetch_and(~kRisk) & kRisk) != 0; }

std::optional<SteadyTime> Monitor::deadline() const noexcept {
  return steady_time(deadline_.load(std::memory_order_acquire));
}

std::optional<SteadyTime> Monitor::named_deadline() const noexcept {
  return steady_time(named_deadline_.load(std::memory_order_acquire));
}

std::optional<Duration> Monitor::time_left() const {
  const auto earliest = deadline();
  if (!earliest) return std::nullopt;
  return time_until(*earliest, clock_.now());
}

std::optional<Notice> Monitor::standing() const {
  const MutexLock lock(mutex_);
  const Notice* const found = earliest();
  return found != nullptr ? std::optional<Notice>(*found) : std::nullopt;
}

std::optional<SteadyTime> Monitor::stop_seen() const {
  const MutexLock lock(mutex_);
  return stop_seen_;
}

std::string Monitor::reason() const {
  const MutexLock lock(mutex_);
  if (stop_seen_) return stop_text_;
  const Notice* const found = earliest();
  return found != nullptr ? found->text : std::string();
}

std::vector<Notice> Monitor::standing_notices() const {
  std::vector<Notice> found;
  const MutexLock lock(mutex_);
  found.reserve(announced_.size() + 2);
  for (const Announced& announced : announced_) {
    if (!announced.dismissed) found.push_back(announced.notice);
  }
  if (!stop_requested()) return found;
  const auto stop_by = [&](const std::optional<SteadyTime>& when, bool guessed) HOLDFAST_REQUIRES(mutex_) {
    found.push_back({.source = "stop",
                     .kind = NoticeKind::stop,
                     .deadline = when,
                     .text = stop_text_,
                     .guessed = guessed,
                     .seen = stop_seen_});
  };
  stop_by(stop_deadline_, stop_deadline_ != named_stop_deadline_);
  if (named_stop_deadline_ && stop_deadline_ != named_stop_deadline_) stop_by(named_stop_deadline_, false);
  return found;
}

std::vector<Notice> Monitor::notices() const {
  const MutexLock lock(mutex_);
  return notices_;
}

const Notice* Monitor::earliest() const {
  const Notice* found = nullptr;
  for (const Announced& announced : announced_) {
    const Notice& notice = announced.notice;
    if (announced.dismissed) continue;
    // An end beats a sleep: after a hibernation the run goes on, after an end it does not.
    if (found == nullptr || (found->hibernates && !notice.hibernates) ||
        (found->hibernates == notice.hibernates && *notice.deadline < *found->deadline)) {
      found = &notice;
    }
  }
  return found;
}

bool Monitor::counts(const Which& which, const Notice& notice) noexcept {
  if (which.sleeps != Sleeps::count && notice.hibernates != (which.sleeps == Sleeps::alone)) return false;
  return !(which.named && notice.guessed) && notice.deadline &&
         !(which.after && *notice.deadline <= *which.after);
}

std::optional<SteadyTime> Monitor::find_deadline(const Which& which) const noexcept {
  std::optional<SteadyTime> first = which.named ? named_stop_deadline_ : stop_deadline_;
  if (first && ((which.after && *first <= *which.after) || which.sleeps == Sleeps::alone)) first.reset();
  for (const Announced& announced : announced_) {
    if (announced.dismissed || !counts(which, announced.notice)) continue;
    // It had passed when the stop came, so it says nothing about the time that is left.
    if (stop_seen_ && *announced.notice.deadline <= *stop_seen_) continue;
    lower(first, *announced.notice.deadline);
  }
  return first;
}

std::optional<SteadyTime> Monitor::earliest_deadline(const Which& which) const noexcept {
  const MutexLock lock(mutex_);
  return find_deadline(which);
}

void Monitor::settle_deadline() noexcept {
  const bool stands = std::any_of(announced_.begin(), announced_.end(),
                                  [](const Announced& announced) { return !announced.dismissed; });
  const std::optional<SteadyTime> first = find_deadline({});
  const std::optional<SteadyTime> first_named = find_deadline({.named = true});
  // Deadline before flag: a thread that sees the flag must find the deadline.
  deadline_.store(first ? nanoseconds(*first) : kNoDeadline);
  named_deadline_.store(first_named ? nanoseconds(*first_named) : kNoDeadline);
  if (stands) {
    flags_.fetch_or(kDeadline);
  } else {
    flags_.fetch_and(~kDeadline);
  }
}

void Monitor::dismiss(SteadyTime until, bool woken) {
  // Marked, not erased: the source may repeat the announcement, and that must not wake the run again.
  const MutexLock lock(mutex_);
  for (Announced& announced : announced_) {
    const bool slept = woken && announced.notice.hibernates;
    if (slept || *announced.notice.deadline <= until) announced.dismissed = true;
  }
  settle_deadline();
}

std::vector<Monitor::Announced>::iterator Monitor::find(const Notice& notice, const Source* from) {
  return std::find_if(announced_.begin(), announced_.end(), [&](const Announced& announced) {
    return announced.from == from && (from != nullptr || announced.notice.source == notice.source);
  });
}

void Monitor::announce(const Notice& notice, const Source* from) {
  const auto known = find(notice, from);
  if (known == announced_.end()) {
    Announced announced{.from = from, .notice = {}};
    try {
      announced.notice = notice;
    } catch (const std::bad_alloc&) {
      // Without memory for the texts the times still count.
      announced.notice.deadline = notice.deadline;
      announced.notice.seen = notice.seen;
      announced.notice.hibernates = notice.hibernates;
      announced.notice.guessed = notice.guessed;
    }
    announced_.push_back(std::move(announced));
    return;
  }
  Notice& before = known->notice;
  // What has passed hides nothing that the source tells now.
  const bool passed = *before.deadline <= *notice.seen;
  if (std::exchange(known->dismissed, false) || passed) {
    before = notice;
    return;
  }
  // An end counts more than a sleep, and a named time more than a guess; of two such the earlier counts.
  before.hibernates = before.hibernates && notice.hibernates;
  const bool counts = before.guessed == notice.guessed ? *notice.deadline < *before.deadline : before.guessed;
  if (!counts) return;
  before.deadline = notice.deadline;
  before.guessed = notice.guessed;
  before.text = notice.text;
}

bool Monitor::latch(const Notice& notice, const Source* from) {
  const MutexLock lock(mutex_);
  if (notice.kind == NoticeKind::deadline) {
    const auto known = find(notice, from);
    const auto same = [&](const Notice& before) {
      const bool now_an_end = before.hibernates && !notice.hibernates;
      return *notice.seen <= *before.seen || (*notice.deadline <= *before.deadline && !now_an_end);
    };
    // The source repeats what was dismissed already.
    if (known != announced_.end() && known->dismissed && same(known->notice)) return false;
  }
  try {
    // A script may request checkpoints without end; they would push out the notices that explain an end.
    if (notice.kind != NoticeKind::checkpoint_now && notices_.size() < kKept) notices_.push_back(notice);
  } catch (const std::bad_alloc&) {
    log_debug("a notice is not kept: no memory");
  }
  switch (notice.kind) {
    case NoticeKind::checkpoint_now:
      flags_.fetch_or(kCheckpoint);
      break;
    case NoticeKind::at_risk:
      flags_.fetch_or(kRisk);
      break;
    case NoticeKind::stop:
      // The first stop names the reason; later ones only shorten the time.
      if (!stop_seen_) {
        stop_seen_ = notice.seen;
        stop_text_ = text_or_out_of_memory([&] { return notice.text; });
      }
      if (notice.deadline) lower(stop_deadline_, *notice.deadline);
      if (notice.deadline && !notice.guessed) lower(named_stop_deadline_, *notice.deadline);
      settle_deadline();
      // After the deadline is stored, for the same reason as in settle_deadline().
      flags_.fetch_or(kStop);
      break;
    case NoticeKind::deadline:
      try {
        announce(notice, from);
      } catch (const std::bad_alloc&) {  // no space for another source: lower the first source's deadline
        auto& first = announced_.front();
        first.notice.deadline = std::min(*first.notice.deadline, *notice.deadline);
        first.dismissed = false;
      }
      settle_deadline();
      break;
    case NoticeKind::withdrawn:
      if (const auto known = find(notice, from); known != announced_.end()) announced_.erase(known);
      settle_deadline();
      break;
    case NoticeKind::thawed:
      break;
  }
  return true;
}

void Monitor::post(Notice notice) { post(std::move(notice), nullptr); }

// The notice counts even if there is no memory for its text.
void Monitor::post(Notice notice, const Source* from) {
  const SteadyTime now = clock_.now();
  if (!notice.seen) notice.seen = now;
  notice.from = from;
  // A notice without a time gets the usual one, so that a plan can be made.
  const bool timeless = notice.kind == NoticeKind::deadline && !notice.deadline;
  if (timeless) {
    notice.deadline = *notice.seen + std::chrono::duration_cast<SteadyTime::duration>(kUnknownNoticeTime);
    notice.guessed = true;
  }
  if (!latch(notice, from)) return;
  try {
    std::string line = "notice (" + notice.source + "): " + notice.text;
    if (notice.deadline) line += ", " + format_duration(*notice.deadline - now) + " left";
    if (timeless) line += " (no deadline given; this one is assumed)";
    log_info(line);
  } catch (const std::bad_alloc&) {
    log_info("a notice arrived; no memory to print its text");
  }
  // From here on without the mutex, because the listener may query this Monitor.
  if (!listener_) return;
  const MutexLock lock(listener_mutex_);
  listener_(notice);
}

bool Monitor::poll(Source& source) noexcept {
  try {
    for (Notice& notice : source.poll()) post(std::move(notice), &source);
    return true;
  } catch (const std::bad_alloc&) {
    return true;  // there may be memory at the next poll
  } catch (const std::exception& error) {
    log_error("the interruption source \"{}\" failed and is off: {}", source.name(), error.what());
  } catch (...) {
    log_error("the interruption source \"{}\" failed and is off", source.name());
  }
  return false;
}

void Monitor::watch(Source& source) noexcept {
  // poll() ignores the negative descriptor of a source that cannot wake it.
  pollfd events[2] = {{.fd = stop_event_, .events = POLLIN, .revents = 0},
                      {.fd = source.wake_descriptor(), .events = POLLIN, .revents = 0}};
  // start() does not poll a source that may block, so its first poll is here.
  if (source.may_block() && !poll(source)) return;
  while (true) {
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(source.interval()).count();
    // At least 1 ms, so that an interval of 0 does not become a busy loop. At most an hour, for poll()'s
    // int.
    ::poll(events, 2, static_cast<int>(std::clamp<std::int64_t>(wait, 1, 3'600'000)));
    if (events[0].revents != 0) return;
    if (!poll(source)) return;
  }
}

}}  // namespace holdfast::v0_2
