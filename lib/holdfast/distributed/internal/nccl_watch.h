// Ends a process whose GPU collectives failed, in order and without wrong numbers in a checkpoint. A thread
// polls the backend (nccl_backend.h: fault_of()) and the signs of life. After a fault it names the lost rank,
// and one of these happens:
//
//   the training thread reaches a guard()   GroupError unwinds the program; the group's destructor aborts
//                                           NCCL last and ends the watch
//   it waits for the device                 evidence of the stall is kept (group_evidence.h), then end():
//                                           rank and remedy on standard error, exit code 75, within two
//                                           seconds of the verdict unless a save is in flight
//
// Errors: none are thrown. Threads: a thread of its own asks all questions; all members from any thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
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
  // For a training thread that waits for the device, after the lost rank is named: it may come back.
  Duration to_return = std::chrono::milliseconds(700);
  // For a program that unwinds: its destructors may wait for the device.
  Duration to_unwind = std::chrono::seconds(2);
  // For a save in flight, and for a training thread that is busy with something else than NCCL.
  Duration patience;
  // From a signal that asks to stop until the process must have ended. The earlier limit counts.
  Duration grace = Duration::max();
};

struct NcclWatchQuestions {
  std::function<std::string()> fault;  // what is wrong; empty: nothing
  std::function<std::string()> who;    // the lost rank, in words. May take seconds; the answer is kept
  std::function<bool()> waits;         // a collective has begun and not ended
  std::function<bool()> saving;        // a save of this process is in flight
  std::function<bool()> told_to_stop;  // a signal has asked this process to stop
  // Keeps what tells why the training hangs. Called once, before end(), unless this process was told to stop.
  // Takes a second at most.
  std::function<void(const std::string& why)> keep_evidence;
  // Gets who() and the failure. Returns only in tests.
  std::function<void(const std::string& who, const std::string& failure)> end;
};

class NcclWatch {
 public:
  NcclWatch(NcclWatchQuestions questions, const NcclWatchOptions& options);
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  // The program unwinds, because a guard has thrown or for a reason of its own. The first failure counts.
  void unwinding(const std::string& failure);
  std::string failure() const;  // empty: none

 private:
  void run();
  std::string await_failure();
  bool must_end(SteadyTime now);

  const NcclWatchQuestions ask_;
  const NcclWatchOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string failure_;
  std::optional<SteadyTime> unwinding_since_;
  bool over_ = false;
  // Used by the thread alone.
  std::optional<SteadyTime> stopped_at_;
  std::optional<SteadyTime> waiting_since_;
  SteadyTime failed_at_{};
  std::thread thread_;
};

// Ends the process with exit code 75 at once: no destructors, nothing that could wait for the device.
// Committed checkpoints stand.
[[noreturn]] void end_interrupted() noexcept;

}}  // namespace holdfast::v0_2
