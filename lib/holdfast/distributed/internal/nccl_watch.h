// Ends a process whose collectives on the GPU failed, in order and without wrong numbers in a checkpoint.
//
// A collective of NCCL fails after the call that began it has returned. By then the training thread waits for
// the device, and nothing tells it. c10d would abort the process (no rank is named, the exit code is a
// crash's), or the communicators: kernels end then, whatever is in memory, and all that waited behind them in
// the stream goes on, an update, a copy of the state, a checkpoint of it. So nobody aborts here while
// anything can still be saved. What hangs on the device hangs on, and a save behind it never ends:
//
//   looks at the backend, ten times a second      nccl_backend.h: fault_of()
//   a fault: failure() says it, a line is logged
//   the training thread comes to a guard()        GroupError; the program unwinds, savers first, and the
//                                                 group, outlasting them, aborts then and ends the watch
//   it does not, or unwinding waits for the       end(): rank and remedy on standard error, exit code 75
//   device: `patience` has passed
//
// A save that began before has `patience` to end well.
//
// Errors: none are thrown. Threads: a thread of its own, on which `fault` and `end` are called; all members
// may be called from any thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "holdfast/base/clock.h"

namespace holdfast::inline v1 {

struct NcclWatchOptions {
  Duration look_every = std::chrono::milliseconds(100);
  Duration patience;
};

class NcclWatch {
 public:
  // `fault`: what is wrong; empty: nothing. `end` is told the failure, and does not come back but in tests.
  NcclWatch(std::function<std::string()> fault, std::function<void(const std::string&)> end,
            const NcclWatchOptions& options);
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  // Somebody else knows already: a partner is lost. The first failure counts.
  void tell(const std::string& failure);
  std::string failure() const;  // empty: none

 private:
  void run();

  const std::function<std::string()> fault_;
  const std::function<void(const std::string&)> end_;
  const NcclWatchOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string failure_;
  bool over_ = false;
  std::thread thread_;
};

// Exit code 75, at once: no destructors, nothing that could wait for the device. What was committed stands.
[[noreturn]] void end_interrupted() noexcept;

}  // namespace holdfast::inline v1
