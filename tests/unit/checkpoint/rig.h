// An attempt of a run in memory: a run directory, state, Checkpointer and the loop around them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "holdfast/base/bits.h"
#include "holdfast/base/error.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "support/captured_log.h"
#include "support/gate.h"
#include "support/memory_source.h"
#include "support/run_disk.h"
#include "support/soon.h"

namespace holdfast::test {

struct Volume : RunDisk {
  CheckpointerOptions options(SaveTriggers every = {}) {
    CheckpointerOptions options;
    options.directory = kRun;
    options.mount = "/vol";
    options.every = std::move(every);
    options.notices.hear_signals = false;
    options.notices.cloud = false;
    options.start.seams.file_system = &faults;
    options.start.seams.clock = &clock;
    return options;
  }
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
    losses[source.step()] = bits_hex(report.loss.value());
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

// The work ends with that error of the system, which says why.
template <class Work>
void expect_unreadable(const Work& work, int code, const std::string& why) {
  try {
    work();
    ADD_FAILURE() << "what cannot be read was believed";
  } catch (const IoError& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), testing::HasSubstr(why));
  }
}

// What an uninterrupted run has after so many steps.
inline std::string state_after(std::int64_t steps, MemorySource::Options state = {}) {
  Volume volume;
  Attempt attempt(volume.options(), state);
  attempt.train_to(steps);
  return attempt.state();
}

}  // namespace holdfast::test
