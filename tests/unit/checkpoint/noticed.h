// A run that hears of its end: on a clock that steps and the disk move.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>

#include "announcer.h"
#include "slow_disk.h"

namespace holdfast::test {

using namespace std::chrono_literals;
using testing::HasSubstr;

inline bool of_checkpoint(const Operation& operation, Op kind) {
  return operation.kind == kind && operation.path.find("step-") != std::string::npos;
}

// Steps of 2 s; a save takes as long as the test says, and the training waits for it.
class Noticed : public testing::Test {
 protected:
  Noticed() {
    announcer.give_to(options);
    volume.faults.set_hook([this](const Operation& operation) {
      if (of_checkpoint(operation, Op::create)) ++begun;
      if (of_checkpoint(operation, Op::sync_file)) volume.clock.advance(commit);
    });
  }
  Attempt& start() {
    run = std::make_unique<Attempt>(options);
    return *run;
  }
  // A run that knows what a save takes.
  Attempt& start_measured() {
    start();
    for (int i = 0; i < 10; ++i) step();
    EXPECT_EQ(run->checkpointer.save().wait(), SaveStatus::durable);
    begun = 0;
    return *run;
  }
  Decision step() {
    volume.clock.advance(2s);
    run->step();
    if (run->decision.saved) run->decision.save.wait();
    return run->decision;
  }
  // Steps until it holds, which is soon.
  template <class Condition>
  bool steps_until(const Condition& condition) {
    for (int steps = 0; steps < 1000; ++steps) {
      step();
      if (condition()) return true;
    }
    return false;
  }
  // A thread that was left behind in the disk uses the clock and the volume until it ends.
  void end_with_all_threads() {
    run.reset();
    soon([this] { return !announcer.is_heard() && volume.disk.open_handles() == 0; });
  }
  SteadyTime now() const { return volume.clock.now(); }
  std::int64_t durable() { return run->checkpointer.last_durable().step; }

  Volume volume;
  CapturedLog log;
  CheckpointerOptions options = volume.options();
  Announcer announcer;
  Duration commit = 10s;
  std::atomic<int> begun{0};  // writes of checkpoints
  std::unique_ptr<Attempt> run;
};

}  // namespace holdfast::test
