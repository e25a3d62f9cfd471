#include "holdfast/interruption/monitor.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <limits>
#include <new>
#include <system_error>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"

namespace holdfast::inline v1 {
namespace {

constexpr std::int64_t kNoDeadline = std::numeric_limits<std::int64_t>::max();

std::int64_t nanoseconds(SteadyTime time) {
  return std::chrono::duration_cast<Duration>(time.time_since_epoch()).count();
}

// Handlers run on the threads that a program knows, not on ours.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

Monitor::Monitor(Clock& clock) : clock_(clock), deadline_(kNoDeadline) {}

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
      if (!source->may_block() && !poll(*source)) continue;
      threads_.emplace_back([this, &watched = *source] { watch(watched); });
    }
  } catch (const std::system_error& error) {
    stop();
    throw Error(std::string("cannot start a thread that listens for interruptions: ") + error.what() +
                "; raise the limit of processes (ulimit -u)");
  }
}

void Monitor::stop() noexcept {
  if (stop_event_ < 0) return;
  eventfd_write(stop_event_, 1);
  for (const auto& source : sources_) source->cancel();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  close(std::exchange(stop_event_, -1));
}

bool Monitor::take_checkpoint_request() noexcept {
  return (flags_.fetch_and(~kCheckpoint) & kCheckpoint) != 0;
}

std::optional<SteadyTime> Monitor::deadline() const noexcept {
  const std::int64_t earliest = deadline_.load(std::memory_order_acquire);
  if (earliest == kNoDeadline) return std::nullopt;
  return SteadyTime(std::chrono::duration_cast<SteadyTime::duration>(Duration(earliest)));
}

std::optional<Duration> Monitor::time_left() const {
  const auto earliest = deadline();
  if (!earliest) return std::nullopt;
  return std::max(Duration(*earliest - clock_.now()), Duration::zero());
}

std::string Monitor::reason() const {
  const std::lock_guard lock(mutex_);
  const Notice* found = nullptr;
  for (const Notice& notice : notices_) {
    if (notice.kind == NoticeKind::stop) return notice.text;
    if (notice.kind == NoticeKind::deadline && found == nullptr) found = &notice;
  }
  return found != nullptr ? found->text : std::string();
}

std::vector<Notice> Monitor::notices() const {
  const std::lock_guard lock(mutex_);
  return notices_;
}

// What it asks for counts, also where there is no memory for its words.
void Monitor::post(Notice notice) {
  try {
    std::string line = "notice (" + notice.source + "): " + notice.text;
    if (notice.deadline) line += ", " + format_duration(*notice.deadline - clock_.now()) + " left";
    log_info(line);
  } catch (const std::bad_alloc&) {
    log_info("a notice, and no memory for its words");
  }
  {
    const std::lock_guard lock(mutex_);
    try {
      if (notice.kind != NoticeKind::checkpoint_now) notices_.push_back(notice);
    } catch (const std::bad_alloc&) {
      log_debug("a notice is not kept: no memory");
    }
    // The deadline first: whoever sees the flag finds it.
    if (notice.deadline) deadline_.store(std::min(deadline_.load(), nanoseconds(*notice.deadline)));
    switch (notice.kind) {
      case NoticeKind::checkpoint_now:
      case NoticeKind::at_risk:
        flags_.fetch_or(kCheckpoint);
        break;
      case NoticeKind::stop:
        flags_.fetch_or(kStop);
        break;
      case NoticeKind::deadline:
        flags_.fetch_or(kDeadline);
        break;
      case NoticeKind::withdrawn:
        break;
    }
  }
  changed_.notify_all();
  if (!listener_) return;
  const std::lock_guard lock(listener_mutex_);
  listener_(notice);
}

bool Monitor::wait_for(Duration limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [this] { return (flags_.load() & (kStop | kDeadline)) != 0; });
}

bool Monitor::poll(Source& source) noexcept {
  try {
    for (Notice& notice : source.poll()) post(std::move(notice));
    return true;
  } catch (const std::bad_alloc&) {
    return true;  // perhaps there is memory at the next poll
  } catch (const std::exception& error) {
    log_error("the interruption source \"{}\" failed and is off: {}", source.name(), error.what());
  } catch (...) {
    log_error("the interruption source \"{}\" failed and is off", source.name());
  }
  return false;
}

void Monitor::watch(Source& source) noexcept {
  pollfd events[2] = {{.fd = stop_event_, .events = POLLIN, .revents = 0},
                      {.fd = source.wake_descriptor(), .events = POLLIN, .revents = 0}};
  if (source.may_block() && !poll(source)) return;
  while (true) {
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(source.interval()).count();
    ::poll(events, 2, static_cast<int>(std::clamp<std::int64_t>(wait, 1, 3'600'000)));
    if (events[0].revents != 0) return;
    if (!poll(source)) return;
  }
}

}  // namespace holdfast::inline v1
