// The power fails before every single operation that could change the disk: what was acknowledged is there,
// and the run ends where an uninterrupted one does.
#include <gtest/gtest.h>

#include <atomic>

#include "rig.h"

namespace holdfast::test { namespace {

constexpr std::int64_t kLast = 5;

struct Cut {
  MemoryFileSystem disk;
  std::int64_t acknowledged;
  std::string before;
};

// One attempt on `volume` that saves every other step; a cut before each mutating operation.
std::vector<Cut> cuts_of_a_run(Volume& volume, bool least) {
  std::vector<Cut> cuts;
  std::mutex mutex;
  std::atomic<std::int64_t> acknowledged{-1};
  volume.faults.set_hook([&](const Operation& operation) {
    if (!operation.mutating) return;
    const std::lock_guard lock(mutex);
    cuts.push_back({least ? volume.disk.crash() : volume.disk.copy(), acknowledged.load(), operation.text()});
  });
  CheckpointerOptions options = volume.options({SaveEvery::steps(2)});
  options.keep = KeepLast{2};
  {
    Attempt run(options);
    acknowledged = run.checkpointer.last_durable().step;
    while (run.source.step() < kLast) {
      if (run.step().saved) {
        const SaveHandle handle = run.checkpointer.save();
        EXPECT_EQ(handle.wait(), SaveStatus::durable) << handle.error();
        acknowledged = handle.step();
      }
    }
    EXPECT_EQ(run.checkpointer.finish(), 0);
  }
  volume.faults.set_hook(nullptr);
  return cuts;
}

// Under a sanitizer, which is there for other things, a seventh of the cuts.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kStride = 7;
#else
constexpr std::size_t kStride = 1;
#endif

void check_all(const std::vector<Cut>& cuts, const std::string& straight) {
  ASSERT_GT(cuts.size(), 20u);
  for (std::size_t i = 0; i < cuts.size(); i += kStride) {
    const Cut& cut = cuts[i];
    SCOPED_TRACE("power lost before " + cut.before);
    Volume volume;
    volume.disk = cut.disk.copy();
    volume.disk.mount("/vol");
    Attempt next(volume.options());
    EXPECT_GE(next.resumed.step, cut.acknowledged);
    EXPECT_TRUE(next.resumed.skipped.empty());
    next.train_to(kLast);
    EXPECT_EQ(next.state(), straight);
    EXPECT_EQ(next.checkpointer.finish(), 0);
  }
}

TEST(PowerLoss, OfAFreshRun) {
  CapturedLog log;
  const std::string straight = state_after(kLast);
  for (const bool least : {true, false}) {
    Volume volume;
    check_all(cuts_of_a_run(volume, least), straight);
  }
}

TEST(PowerLoss, OfAResumedRun) {
  CapturedLog log;
  const std::string straight = state_after(kLast);
  for (const bool least : {true, false}) {
    Volume volume;
    {
      Attempt first(volume.options());
      first.train_to(2);
      first.checkpointer.finish();
    }
    check_all(cuts_of_a_run(volume, least), straight);
  }
}

}}  // namespace holdfast::test
