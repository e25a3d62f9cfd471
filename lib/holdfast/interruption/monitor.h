// Collects interruptions from all sources in one latched state. A stop stays for ever. A deadline stands
// until its source withdraws it, or until it has passed and dismiss() is called. Risks and checkpoint
// requests wait until they are taken. docs/interruption_sources.md#how-notices-combine has the rules.
//
//   Monitor monitor(clock);
//   monitor.add(std::make_unique<SignalSource>(clock));  monitor.start();
//   …each step:  if (monitor.pending()) …               // one atomic load
//
// Errors: start() throws IoError without an eventfd, Error without a thread. A source that throws is logged
// and off.
// Threads: add, listen, start, stop by the owner; the other methods from any thread. pending(),
// stop_requested(), deadline(), named_deadline(), take_checkpoint_request() and take_risk() are lock-free.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/base/export.h"
#include "holdfast/base/mutex.h"
#include "holdfast/base/owner_process.h"
#include "holdfast/interruption/notice.h"
#include "holdfast/interruption/source.h"

namespace holdfast { inline namespace v0_2 {

class HOLDFAST_EXPORT Monitor {
 public:
  explicit Monitor(Clock& clock = Clock::real());
  ~Monitor();  // calls stop()
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // Call before start().
  void add(std::unique_ptr<Source> source);
  // `listener` gets every notice, one at a time, on the thread that brought it, after the state has changed.
  // It must not call stop() or post(). Call before start().
  void listen(std::function<void(const Notice&)> listener);

  // Polls every source that does not block, once, on this thread. So signals latched before main() are seen
  // when start() returns. Then starts the threads.
  void start();
  // Ends the threads; the latched state stays. Idempotent. In a forked child, stop() and the destructor do
  // not touch the parent's threads and sources.
  void stop() noexcept;

  // True if there is anything that the training loop should look at.
  bool pending() const noexcept { return flags_.load(std::memory_order_acquire) != 0; }
  bool stop_requested() const noexcept { return (flags_.load(std::memory_order_acquire) & kStop) != 0; }
  // When the first notice that asked to stop was seen.
  std::optional<SteadyTime> stop_seen() const;
  // True once for each request; repeated requests in between count as one.
  bool take_checkpoint_request() noexcept;
  // Takes the pending notices of risk.
  bool take_risk() noexcept;
  // When the process must have ended: the earliest deadline of the stops and of the standing notices. After a
  // stop, a deadline that had passed before the stop no longer counts, because the machine has outlived it.
  std::optional<SteadyTime> deadline() const noexcept;
  // The earliest deadline that somebody named; nullopt if all are guesses (Notice::guessed).
  std::optional<SteadyTime> named_deadline() const noexcept;
  // Of the deadlines that deadline() considers: those that somebody named, with or without those of machines
  // that hibernate, those after a moment.
  enum class Sleeps { count, left_out, alone };
  struct Which {
    bool named = false;
    Sleeps sleeps = Sleeps::count;
    std::optional<SteadyTime> after = {};
  };
  // The earliest of these. Not lock-free.
  std::optional<SteadyTime> earliest_deadline(const Which& which) const noexcept HOLDFAST_EXCLUDES(mutex_);
  static bool counts(const Which& which, const Notice& notice) noexcept;
  // Time until deadline(); zero if it has passed.
  std::optional<Duration> time_left() const;

  // The notice whose deadline the planner uses: the earliest that stands. One that hibernates counts only if
  // no other stands. `deadline` and `seen` are set.
  std::optional<Notice> standing() const;
  // What stands now: a stop if one was asked for, and each announced end that was not withdrawn.
  std::vector<Notice> standing_notices() const;
  // The machine lives: ignores deadlines up to `until`, and with `woken` those of all notices that hibernate.
  void dismiss(SteadyTime until, bool woken = false);

  // Text of the first notice that asked to stop, otherwise of standing(). Empty if there is neither.
  std::string reason() const;
  // The first kKept notices, in order of arrival, without checkpoint requests.
  std::vector<Notice> notices() const;
  static constexpr std::size_t kKept = 256;
  // The sources, for their figures. Valid after start().
  const std::vector<std::unique_ptr<Source>>& sources() const { return sources_; }
  // Adds a notice from inside the program, such as a stop that the user's code asks for.
  void post(Notice notice);

 private:
  static constexpr std::uint32_t kCheckpoint = 1;
  static constexpr std::uint32_t kStop = 2;
  static constexpr std::uint32_t kDeadline = 4;
  static constexpr std::uint32_t kRisk = 8;

  // What one source has announced and not withdrawn.
  struct Announced {
    const Source* from = nullptr;  // nullptr: posted by the program, under the notice's source name
    Notice notice;                 // with its earliest deadline
    bool dismissed = false;
  };

  void post(Notice notice, const Source* from);
  bool latch(const Notice& notice, const Source* from) HOLDFAST_EXCLUDES(mutex_);  // false: old news
  void announce(const Notice& notice, const Source* from) HOLDFAST_REQUIRES(mutex_);
  std::vector<Announced>::iterator find(const Notice& notice, const Source* from) HOLDFAST_REQUIRES(mutex_);
  const Notice* earliest() const HOLDFAST_REQUIRES(mutex_);
  std::optional<SteadyTime> find_deadline(const Which& which) const noexcept HOLDFAST_REQUIRES(mutex_);
  void settle_deadline() noexcept HOLDFAST_REQUIRES(mutex_);
  void let_go() noexcept;

  bool poll(Source& source) noexcept;  // false: it threw
  void watch(Source& source) noexcept;

  const OwnerProcess process_;
  Clock& clock_;
  std::vector<std::unique_ptr<Source>> sources_;
  std::function<void(const Notice&)> listener_;
  std::vector<std::thread> threads_;
  int stop_event_ = -1;  // eventfd; readable when the threads must end

  std::atomic<std::uint32_t> flags_{0};
  std::atomic<std::int64_t> deadline_;  // nanoseconds on the steady clock; the largest value: none
  std::atomic<std::int64_t> named_deadline_;
  Mutex listener_mutex_;  // one call of the listener at a time
  mutable Mutex mutex_;
  std::vector<Notice> notices_ HOLDFAST_GUARDED_BY(mutex_);
  std::vector<Announced> announced_ HOLDFAST_GUARDED_BY(mutex_);
  std::optional<SteadyTime> stop_seen_ HOLDFAST_GUARDED_BY(mutex_);
  std::optional<SteadyTime> stop_deadline_ HOLDFAST_GUARDED_BY(mutex_);
  std::optional<SteadyTime> named_stop_deadline_ HOLDFAST_GUARDED_BY(mutex_);
  std::string stop_text_ HOLDFAST_GUARDED_BY(mutex_);
};

}}  // namespace holdfast::v0_2
