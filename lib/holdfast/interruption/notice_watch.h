// A thread that starts with the first notice. It runs the commands for a machine at risk, and does the work
// that needs no training thread. It logs if training does not look at a pending notice.
//
// Errors: none; failures are logged. Threads: wake() and heard() from any; the inside thread calls the
// callbacks.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/base/mutex.h"
#include "holdfast/base/thread/thread_role.h"
#include "holdfast/interruption/internal/risk_hook.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class NoticeWatch {
 public:
  struct Callbacks {
    std::function<bool()> pending;       // is there something that training should look at
    std::function<void()> respond;       // does what needs no training thread
    std::function<bool()> waits = {};    // such work may come up although nothing is pending
    std::function<Duration()> patience;  // how long training may take to look
    std::function<std::string()> what;   // for people: the notice, and the time left
  };
  NoticeWatch(const Clock& clock, Callbacks callbacks) : clock_(clock), callbacks_(std::move(callbacks)) {}
  ~NoticeWatch() { stop(); }
  NoticeWatch(const NoticeWatch&) = delete;
  NoticeWatch& operator=(const NoticeWatch&) = delete;

  // There is news. Runs `command` unless its text is empty. Never blocks. Logs if no thread can be made.
  void wake(const RiskCommand& command) noexcept;
  // Training looked.
  void heard() noexcept { heard_.store(clock_.now().time_since_epoch().count(), std::memory_order_relaxed); }
  // Between begin() and end() training is expected to look.
  void begin() noexcept {
    heard();
    expected_.store(true, std::memory_order_release);
  }
  void end() noexcept { expected_.store(false, std::memory_order_release); }
  // Ends the thread.
  void stop() noexcept;

 private:
  void run() noexcept;
  void look_for_silence() noexcept HOLDFAST_REQUIRES(thread_role_);

  const Clock& clock_;
  const Callbacks callbacks_;
  std::atomic<std::int64_t> heard_{0};
  std::atomic<bool> expected_{false};

  Mutex mutex_;
  CondVar changed_;
  std::vector<RiskCommand> commands_ HOLDFAST_GUARDED_BY(mutex_);
  bool woken_ HOLDFAST_GUARDED_BY(mutex_) = false;
  bool stopping_ HOLDFAST_GUARDED_BY(mutex_) = false;
  std::thread thread_ HOLDFAST_GUARDED_BY(mutex_);

  ThreadRole thread_role_;
  // The value of heard_ that the last log line was about.
  std::int64_t said_about_ HOLDFAST_GUARDED_BY(thread_role_) = -1;
  std::int64_t noticed_ HOLDFAST_GUARDED_BY(thread_role_) = 0;  // when it began to wait for a look
};

}}}  // namespace holdfast::v0_2::internal
