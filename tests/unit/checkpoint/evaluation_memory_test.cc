// An evaluation needs no memory that nobody announced: the image that a save of the same step is being staged
// into or written from is the image of the boundary, and one of an older step is waited for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "rig.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

constexpr std::size_t kElements = 4u << 20;  // 16 MiB of weights, as much of momentum
constexpr std::int64_t kState = 2 * 4 * static_cast<std::int64_t>(kElements);

std::int64_t resident() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t size = 0;
  std::int64_t pages = 0;
  statm >> size >> pages;
  return pages * 4096;
}

#if defined(__SANITIZE_THREAD__)
constexpr std::int64_t kMost = INT64_MAX;  // the sanitizer keeps several bytes for each
#elif defined(__SANITIZE_ADDRESS__)
constexpr std::int64_t kMost =
    kState * 106 / 100 * 9 / 8 + (8 << 20);  // it keeps a byte for eight, and what was freed
#else
// An image, and what of it is lost to huge pages.
constexpr std::int64_t kMost = kState * 106 / 100 + (4 << 20);
#endif

struct Peak {
  std::int64_t before = 0;  // without any image
  std::int64_t inside = 0;
};

// On the real disk, whose files are not this process's memory.
CheckpointerOptions on_disk(const TemporaryFolder& folder, FaultFileSystem& faults) {
  CheckpointerOptions options;
  options.directory = folder.path() / "run";
  options.every = {SaveEvery::steps(2)};
  options.notices.hear_signals = false;
  options.notices.cloud = false;
  options.start.seams.file_system = &faults;
  return options;
}

Peak evaluate_beside(bool announced, const std::function<void(const Operation&)>& hook = {},
                     const std::function<void()>& before = {}) {
  const TemporaryFolder folder;
  FaultFileSystem faults(FileSystem::real());
  if (hook) faults.set_hook(hook);
  MemorySource::Options large;
  large.elements = kElements;
  Attempt run(on_disk(folder, faults), large);
  const auto step = [&] {
    if (announced) run.checkpointer.before_update();
    return run.step();
  };
  step();
  Peak peak{.before = resident()};
  EXPECT_TRUE(step().saved);
  if (before) before();
  {
    const Checkpointer::EvaluationScope scope(run.checkpointer);
    peak.inside = resident();
    run.checkpointer.tick();
  }
  EXPECT_EQ(run.checkpointer.finish(), 0);
  return peak;
}

TEST(EvaluationMemory, ALateCopyInFlightIsTheImageOfTheBoundary) {
  CapturedLog log;
  const Peak peak = evaluate_beside(true);
  EXPECT_LE(peak.inside - peak.before, kMost);
  EXPECT_GE(peak.inside - peak.before, kState * 9 / 10) << "there is an image";
}

TEST(EvaluationMemory, AWriteInFlightOfThisStepIsTheImageOfTheBoundary) {
  CapturedLog log;
  Gate gate;
  const auto hold = [&](const Operation& operation) {
    if (operation.kind == Op::sync_file && operation.path.find("step-") != std::string::npos) gate.pass();
  };
  std::thread later;
  const Peak peak = evaluate_beside(false, hold, [&] {
    gate.await_arrival();
    later = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      gate.open();
    });
  });
  later.join();
  EXPECT_LE(peak.inside - peak.before, kMost);
}

TEST(EvaluationMemory, AWriteInFlightOfAnOlderStepIsWaitedFor) {
  CapturedLog log;
  const TemporaryFolder folder;
  FaultFileSystem faults(FileSystem::real());
  Gate gate;
  faults.set_hook([&](const Operation& operation) {
    if (operation.kind == Op::sync_file && operation.path.find("step-") != std::string::npos) gate.pass();
  });
  MemorySource::Options large;
  large.elements = kElements;
  Attempt run(on_disk(folder, faults), large);
  run.step();
  const std::int64_t before = resident();
  EXPECT_TRUE(run.step().saved);
  gate.await_arrival();
  EXPECT_FALSE(run.step().saved);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    gate.open();
  });
  {
    const Checkpointer::EvaluationScope scope(run.checkpointer);
    EXPECT_LE(resident() - before, kMost);
    run.source.weight(0) = 7;
    run.checkpointer.request_stop("test");
    EXPECT_TRUE(run.checkpointer.tick());
  }
  later.join();
  EXPECT_EQ(run.checkpointer.finish(), 75);
  EXPECT_EQ(run.checkpointer.last_durable().step, 3);
}

// What was staged for the save is what the evaluation is interrupted with, and its evaluation is still due.
TEST(EvaluationMemory, TheSharedImageRecordsThatTheEvaluationIsDue) {
  for (const bool interrupted : {false, true}) {
    Volume volume;
    CapturedLog log;
    {
      Attempt run(volume.options({SaveEvery::steps(2)}));
      for (int i = 0; i < 2; ++i) {
        run.checkpointer.before_update();
        run.step();
      }
      {
        const Checkpointer::EvaluationScope scope(run.checkpointer);
        EXPECT_EQ(run.source.copies, 1) << "no second copy";
        if (interrupted) run.checkpointer.request_stop("test");
        EXPECT_EQ(run.checkpointer.tick(), interrupted);
      }
      EXPECT_EQ(run.checkpointer.finish(), interrupted ? 75 : 0);
    }
    Attempt next(volume.options());
    EXPECT_EQ(next.resumed.step, 2);
    EXPECT_EQ(next.resumed.evaluation_due, interrupted);
    EXPECT_EQ(next.state(), state_after(2));
  }
}

}}  // namespace holdfast::test
