// A run directory in memory with faults in front of it and a clock that tests move, and an attempt of a run
// in it: state, Checkpointer and the loop around them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/base/bits.h"
#include "holdfast/base/error.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "support/fake_clock.h"
#include "support/fault_file_system.h"
#include "support/memory_file_system.h"
#include "support/memory_source.h"

namespace holdfast::test {

inline constexpr char kRun[] = "/vol/run";

struct Volume {
  MemoryFileSystem disk;
  FaultFileSystem faults{disk};
  FakeClock clock;

  Volume() { disk.mount("/vol"); }

  CheckpointerOptions options(std::vector<SaveEvery> every = {}) {
    CheckpointerOptions options;
    options.directory = kRun;
    options.mount = "/vol";
    options.every = std::move(every);
    options.hear_signals = false;
    options.cloud = false;
    options.file_system = &faults;
    options.clock = &clock;
    return options;
  }
  std::vector<std::string> checkpoints() const {
    std::vector<std::string> found;
    for (const std::string& name : disk.names(kRun)) {
      if (name.starts_with("step-") && name.ends_with(".h5")) found.push_back(name);
    }
    return found;
  }
  std::string path(const std::string& name) const { return std::string(kRun) + "/" + name; }
};

// One process life of a run.
struct Attempt {
  MemorySource source;
  Checkpointer checkpointer;
  Resumed resumed;
  std::map<std::int64_t, std::string> losses;  // bits by step
  Decision decision;                           // of the last step

  explicit Attempt(const CheckpointerOptions& options, MemorySource::Options state = {})
      : source(state), checkpointer(source, options), resumed(checkpointer.resume()) {}

  Decision step() {
    StepReport report = source.train();
    decision = checkpointer.after_step(report);
    losses[source.step()] = bits_hex(report.loss);
    return decision;
  }
  // Up to that step, or to a stop. Waits for every save, so that none is skipped because the disk is busy.
  void train_to(std::int64_t last) {
    while (source.step() < last) {
      step();
      if (decision.saved) checkpointer.save().wait();
      if (decision.stop) return;
    }
  }
  std::string state() { return to_hex(checkpointer.state_digest()); }
};

// What an uninterrupted run has after so many steps.
inline std::string state_after(std::int64_t steps, MemorySource::Options state = {}) {
  Volume volume;
  Attempt attempt(volume.options(), state);
  attempt.train_to(steps);
  return attempt.state();
}

// Waits until it holds: 20 s of real time at most, since a test that hangs says nothing.
template <class Condition>
bool soon(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// Stops whoever comes to it until it is opened.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    arrived_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  void await_arrival() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool arrived_ = false;
  bool open_ = false;
};

// Messages on standard error while it lives.
class CapturedLog {
 public:
  CapturedLog() { testing::internal::CaptureStderr(); }
  ~CapturedLog() {
    if (!taken_) testing::internal::GetCapturedStderr();
  }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;
  std::string text() {
    taken_ = true;
    return testing::internal::GetCapturedStderr();
  }

 private:
  bool taken_ = false;
};

}  // namespace holdfast::test
