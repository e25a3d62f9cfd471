// Hears interruptions from all sources and keeps them in one latched state:
//
//   a stop        stays for ever, whatever is said later
//   a deadline    stands until the source that announced it withdraws it, or it has passed and dismiss() is
//                 called. Of one source the earliest time counts, so that one whose times slide gains none;
//                 of all that stand the earliest. Without a time: kUnknownNoticeTime after it was seen.
//   a risk, a request for a checkpoint    wait until they are taken
//
// What was dismissed stays so: the same news of the same source is not heard again, neither a deadline that
// is no later nor one that was first seen no later. Anything else is, and an end where sleep was announced.
//
//   Monitor monitor(clock);
//   monitor.add(std::make_unique<SignalSource>(clock));
//   monitor.start();
//   …each step:  if (monitor.pending()) …               // one atomic load
//
// Every notice is logged once, with its source and the time left.
// Errors: start() throws Error when a thread cannot be made. Nothing else throws; a source that throws is
// switched off with an error in the log.
// Threads: add, listen, start, stop by the owner; everything else from any thread. pending(),
// stop_requested(), deadline(), take_checkpoint_request() and take_risk() are lock-free.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/interruption/notice.h"
#include "holdfast/interruption/source.h"

namespace holdfast::inline v1 {

class Monitor {
 public:
  explicit Monitor(Clock& clock = Clock::real());
  ~Monitor();  // stops
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // Before start().
  void add(std::unique_ptr<Source> source);
  // Called for every notice, one at a time, on the thread that brought it, after the state has changed. It
  // must not call stop() or post(). Before start().
  void listen(std::function<void(const Notice&)> listener);

  // Polls every source that does not block once, on this thread: what was latched before main() is seen when
  // start() returns. Then starts the threads.
  void start();
  // Ends the threads. The latched state stays. Idempotent.
  void stop() noexcept;

  // Is there anything that the training loop should look at?
  bool pending() const noexcept { return flags_.load(std::memory_order_acquire) != 0; }
  bool stop_requested() const noexcept { return (flags_.load(std::memory_order_acquire) & kStop) != 0; }
  // True once for each request, however often it was repeated in the meantime.
  bool take_checkpoint_request() noexcept;
  // The same for news that the machine may go away.
  bool take_risk() noexcept;
  // When the process has to be done: the earliest of the stops' deadlines and of those that stand. Once asked
  // to stop, deadlines that had passed before count no more: the machine has outlived them.
  std::optional<SteadyTime> deadline() const noexcept;
  // Time until it; zero when it has passed.
  std::optional<Duration> time_left() const;

  // The notice whose deadline the planner goes by: the earliest that stands, one that hibernates only where
  // no other does. `deadline` and `seen` are set.
  std::optional<Notice> standing() const;
  // The machine lives: forgets the deadlines up to then, and those of all that hibernate with `woken`.
  void dismiss(SteadyTime until, bool woken = false);

  // Text of the first notice that asked to stop, otherwise of standing(); empty without either.
  std::string reason() const;
  // In order of arrival, the first kKept of them. Checkpoint requests are not kept.
  std::vector<Notice> notices() const;
  static constexpr std::size_t kKept = 256;
  // For their figures. From start() on.
  const std::vector<std::unique_ptr<Source>>& sources() const { return sources_; }
  // News from inside the program (a stop that a user's code asks for, a test).
  void post(Notice notice);
  // Waits on the machine's own clock, at most `limit`, for a stop or deadline notice; true at once while
  // there is one.
  bool wait_for(Duration limit);

 private:
  static constexpr std::uint32_t kCheckpoint = 1;
  static constexpr std::uint32_t kStop = 2;
  static constexpr std::uint32_t kDeadline = 4;
  static constexpr std::uint32_t kRisk = 8;

  // What one source has announced and not withdrawn.
  struct Announced {
    const Source* from = nullptr;  // nullptr: the program, under the notice's source name
    Notice notice;                 // with its earliest deadline
    bool dismissed = false;
  };

  void post(Notice notice, const Source* from);
  bool latch(const Notice& notice, const Source* from);  // false: old news
  void announce(const Notice& notice, const Source* from);
  std::vector<Announced>::iterator find(const Notice& notice, const Source* from);
  const Notice* earliest() const;
  void settle_deadline() noexcept;

  bool poll(Source& source) noexcept;  // false: it threw
  void watch(Source& source) noexcept;

  Clock& clock_;
  std::vector<std::unique_ptr<Source>> sources_;
  std::function<void(const Notice&)> listener_;
  std::vector<std::thread> threads_;
  int stop_event_ = -1;  // readable once the threads are to end

  std::atomic<std::uint32_t> flags_{0};
  std::atomic<std::int64_t> deadline_;  // nanoseconds on the steady clock; the largest value: none
  mutable std::mutex mutex_;            // everything below
  std::mutex listener_mutex_;
  std::condition_variable changed_;
  std::vector<Notice> notices_;
  std::vector<Announced> announced_;
  std::optional<SteadyTime> stop_seen_;
  std::optional<SteadyTime> stop_deadline_;
  std::string stop_text_;
};

}  // namespace holdfast::inline v1
