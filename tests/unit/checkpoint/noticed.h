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
      if (operation.path.find("trial") != std::string::npos) {
        if (operation.kind == Op::create) ++trials;
        if (operation.kind == Op::sync_file) volume.clock.advance(trial);
        if (operation.kind == Op::unlink) ++tried;
      }
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
  // A trial of the disk is over, and its file gone.
  bool tried_out() {
    if (tried == 0) return false;
    const auto names = volume.disk.names(kRun);
    return std::none_of(names.begin(), names.end(),
                        [](const std::string& name) { return name.find("trial") != std::string::npos; });
  }
  // Steps that take no time until the first of them is durable.
  bool saved_in_no_time() {
    return soon([&] {
      if (durable() >= 0) return true;  // the trial was over before the step was
      run->step();
      if (run->decision.saved) run->decision.save.wait();
      return durable() >= 0;
    });
  }
  SteadyTime now() const { return volume.clock.now(); }
  std::int64_t durable() { return run->checkpointer.last_durable().step; }

  Volume volume;
  CapturedLog log;
  CheckpointerOptions options = volume.options();
  Announcer announcer;
  Duration commit = 10s;
  Duration trial{};
  std::atomic<int> begun{0};   // writes of checkpoints
  std::atomic<int> trials{0};  // and of files that only try the disk out
  std::atomic<int> tried{0};   // of those that are over
  std::unique_ptr<Attempt> run;
};

}  // namespace holdfast::test
