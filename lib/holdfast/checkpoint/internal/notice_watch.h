// A thread that is there only once something was noticed: it runs the commands for a machine at risk, does
// what can be done without the training, and says when the training does not come to look at a notice.
//
// Threads: wake() and heard() from any; the callbacks are called on the inside thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/base/clock.h"

namespace holdfast::inline v1::internal {

class NoticeWatch {
 public:
  struct Callbacks {
    std::function<bool()> pending;       // there is something that the training should look at
    std::function<void()> look;          // does what can be done without the training
    std::function<Duration()> patience;  // how long it may take until it does
    std::function<std::string()> what;   // for people: the notice, the time left
  };
  NoticeWatch(const Clock& clock, Callbacks callbacks) : clock_(clock), callbacks_(std::move(callbacks)) {}
  ~NoticeWatch() { stop(); }
  NoticeWatch(const NoticeWatch&) = delete;
  NoticeWatch& operator=(const NoticeWatch&) = delete;

  // There is news; with a command to run where that is not empty. Never waits. Without a thread it says so.
  void wake(const std::string& command) noexcept;
  // The training looked.
  void heard() noexcept { heard_.store(clock_.now().time_since_epoch().count(), std::memory_order_relaxed); }
  // Between these two somebody is expected to look.
  void begin() noexcept {
    heard();
    expected_.store(true, std::memory_order_release);
  }
  void end() noexcept { expected_.store(false, std::memory_order_release); }
  // Ends the thread.
  void stop() noexcept;

 private:
  void run() noexcept;
  void look_for_silence() noexcept;

  const Clock& clock_;
  const Callbacks callbacks_;
  std::atomic<std::int64_t> heard_{0};
  std::atomic<bool> expected_{false};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> commands_;
  bool woken_ = false;
  bool stopping_ = false;
  std::thread thread_;

  std::int64_t said_about_ = -1;  // the last look after which silence was said; the thread's own
  std::int64_t noticed_ = 0;      // when it began to wait for a look
};

}  // namespace holdfast::inline v1::internal
