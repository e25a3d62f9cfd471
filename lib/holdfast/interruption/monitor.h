// Hears interruptions from all sources and keeps them in one latched state: once asked to stop, always asked
// to stop; of all deadlines ever seen, the earliest. A withdrawal changes neither: it is logged, recorded and
// told to the listener, and whoever still waits for a deadline decides what it means.
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
// stop_requested(), deadline() and take_checkpoint_request() are lock-free.
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
  // The earliest ever seen, of notices of every kind.
  std::optional<SteadyTime> deadline() const noexcept;
  // Time until it; zero when it has passed.
  std::optional<Duration> time_left() const;

  // Text of the first notice that asked to stop, otherwise of the first with a deadline; empty without
  // either.
  std::string reason() const;
  // In order of arrival. Repeated checkpoint requests are not kept.
  std::vector<Notice> notices() const;
  // News from inside the program (a stop that a user's code asks for, a test).
  void post(Notice notice);
  // Waits on the machine's own clock, at most `limit`, for the next stop or deadline notice; true at once
  // when there has been one.
  bool wait_for(Duration limit);

 private:
  static constexpr std::uint32_t kCheckpoint = 1;
  static constexpr std::uint32_t kStop = 2;
  static constexpr std::uint32_t kDeadline = 4;

  bool poll(Source& source) noexcept;  // false: it threw
  void watch(Source& source) noexcept;

  Clock& clock_;
  std::vector<std::unique_ptr<Source>> sources_;
  std::function<void(const Notice&)> listener_;
  std::vector<std::thread> threads_;
  int stop_event_ = -1;  // readable once the threads are to end

  std::atomic<std::uint32_t> flags_{0};
  std::atomic<std::int64_t> deadline_;  // nanoseconds on the steady clock; the largest value: none
  mutable std::mutex mutex_;            // notices_
  std::mutex listener_mutex_;
  std::condition_variable changed_;
  std::vector<Notice> notices_;
};

}  // namespace holdfast::inline v1
