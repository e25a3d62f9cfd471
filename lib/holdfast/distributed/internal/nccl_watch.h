// Ends a process whose GPU collectives failed, in order and without wrong numbers in a checkpoint. A thread
// polls the backend (nccl_backend.h: fault_of()) and logs a fault. Then one of two things happens:
//
//   the training thread reaches a guard()         GroupError unwinds the program; the group's destructor
//                                                 aborts NCCL last and ends the watch
//   it does not within `patience`, or unwinding   end(): rank and remedy on standard error, exit code 75
//   waits for the device
//
// A save that began before the fault has `patience` to finish. Errors: none are thrown. Threads: a thread of
// its own calls `fault` and `end`; all members from any thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "holdfast/base/clock.h"

namespace holdfast { inline namespace v0_2 {

// Why nothing aborts earlier: a collective fails after its call has returned, when the training thread waits
// for the device and hears nothing. c10d would abort the process (no rank named, exit code of a crash), or
// the communicators. Aborted kernels end with whatever is in memory. Everything behind them in the stream
// then continues: an update, a copy of the state, a checkpoint of it. A kernel that hangs instead also holds
// the saves behind it.
struct NcclWatchOptions {
  // Time between two polls: the delay until a fault is noticed. A poll is cheap.
  Duration look_every = std::chrono::milliseconds(100);
  // Time for the training thread to unwind and for a running save to finish.
  Duration patience;
};

class NcclWatch {
 public:
  // `fault` returns what is wrong, or an empty text. `end` gets the failure; it returns only in tests.
  NcclWatch(std::function<std::string()> fault, std::function<void(const std::string&)> end,
            const NcclWatchOptions& options);
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  // Another thread has noticed a loss. The first failure counts.
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

// Ends the process with exit code 75 at once: no destructors, nothing that could wait for the device.
// Committed checkpoints stand.
[[noreturn]] void end_interrupted() noexcept;

}}  // namespace holdfast::v0_2
