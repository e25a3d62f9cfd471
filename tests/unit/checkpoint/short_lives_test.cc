// Lives that end before their first interval save: each leaves its last save, and the volume stays small.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "holdfast/store/run_state.h"
#include "rig.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;

class ShortLives : public testing::Test {
 public:
  std::int64_t live(SaveTriggers every = SaveEvery::steps(1000), Retention keep = {}) {
    CheckpointerOptions options = volume.options(std::move(every));
    options.keep = std::move(keep);
    Attempt run(options);
    run.train_to(run.resumed.step + 3);
    run.checkpointer.request_stop("SIGTERM");
    run.step();
    EXPECT_EQ(run.checkpointer.finish(), 75);
    return run.source.step();
  }
  std::uint64_t used() const {
    std::uint64_t bytes = 0;
    for (const std::string& name : volume.checkpoints()) bytes += volume.disk.get(volume.path(name)).size();
    return bytes;
  }

  Volume volume;
  CapturedLog log;
};

TEST_F(ShortLives, KeepTheVolumeSmall) {
  for (int i = 0; i < 12; ++i) {
    live();
    EXPECT_LE(volume.checkpoints().size(), 3u);
  }
}

// docs/operations.md: three that are kept, one while a new one is written, one for an older finite one.
TEST_F(ShortLives, TheDocumentedRoomIsEnough) {
  live(SaveEvery::steps(1));
  const std::uint64_t one = volume.disk.get(volume.path(volume.checkpoints().front())).size();
  volume.disk.set_capacity(5 * one + one / 2);
  std::int64_t reached = 0;
  for (int i = 0; i < 8; ++i) {
    const std::int64_t now = live();
    EXPECT_GT(now, reached);
    reached = now;
  }
  Attempt run(volume.options());
  EXPECT_EQ(run.resumed.step, reached);
}

TEST_F(ShortLives, AVolumeThatTheyFilledCanBeUsedAgain) {
  // As after lives that were killed right behind their last save.
  for (int i = 0; i < 6; ++i) live(SaveEvery::steps(1000), KeepLast{100});
  EXPECT_EQ(volume.checkpoints().size(), 6u);
  volume.disk.set_capacity(used() + 20'000);  // the small files
  Attempt run(volume.options(SaveEvery::steps(1)));
  for (int i = 0; i < 20; ++i) {
    volume.clock.advance(1min);
    run.step();
    if (run.decision.saved) run.decision.save.wait();
    EXPECT_FALSE(run.decision.failure) << *run.decision.failure;
  }
  EXPECT_LE(volume.checkpoints().size(), 4u);
}

TEST_F(ShortLives, DeleteNothingBeforeTheirEndIsTold) {
  for (int i = 0; i < 3; ++i) live();
  std::vector<std::string> phases;
  volume.faults.set_hook([&](const Operation& operation) {
    if (operation.kind != Op::unlink || !operation.path.ends_with(".h5")) return;
    const auto state = read_run_state(*volume.disk.open_directory(kRun, false));
    phases.emplace_back(state ? word_of(state->phase) : "none");
  });
  live();
  EXPECT_THAT(phases, testing::ElementsAre("interrupted"));
}

}}  // namespace holdfast::test
