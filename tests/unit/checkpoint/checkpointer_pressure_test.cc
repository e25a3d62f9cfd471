// More saves are asked for than the disk takes: nothing queues up, nothing starves, the training does not
// wait, and what is written is the newest that could be.
#include <thread>

#include "slow_disk.h"

namespace holdfast::test { namespace {

using testing::ElementsAre;

constexpr int kPeriod = 5;  // the disk takes a save in so many steps

std::vector<std::int64_t> durable_steps(const std::vector<SaveHandle>& saves) {
  std::vector<std::int64_t> steps;
  for (const SaveHandle& save : saves) {
    if (save.wait() == SaveStatus::durable) steps.push_back(save.step());
  }
  return steps;
}

// A save wanted at every step by whatever means, a disk that finishes one in five steps.
std::vector<SaveHandle> train_under_pressure(Attempt& run, SlowDisk& disk, int steps,
                                             const std::function<void()>& before_step) {
  std::vector<SaveHandle> saves;
  for (int i = 1; i <= steps; ++i) {
    before_step();
    if (run.step().saved) {
      saves.push_back(run.decision.save);
      EXPECT_EQ(saves.back().step(), i);
      disk.await(static_cast<int>(saves.size()));
    }
    if (i % kPeriod == 0) {
      disk.finish();
      saves.back().wait();
    }
  }
  return saves;
}

TEST(Pressure, ASaveAtEveryStepBecomesWhatTheDiskTakes) {
  Volume volume;
  Attempt run(volume.options({SaveEvery::steps(1)}));
  SlowDisk disk(volume);
  const auto saves = train_under_pressure(run, disk, 20, [] {});
  EXPECT_EQ(run.source.copies, 4) << "no copy is made for nothing";
  EXPECT_THAT(durable_steps(saves), ElementsAre(1, 6, 11, 16))
      << "the newest state, as soon as there is room";
  const RunFigures figures = run.checkpointer.figures();
  EXPECT_EQ(figures.durable, 4);
  EXPECT_EQ(figures.overtaken, 0);
  EXPECT_EQ(figures.risk_steps, 4);
  EXPECT_EQ(figures.most_risk_steps, 9) << "16 became durable when the training was at 20, and 11 was safe";
}

TEST(Pressure, RequestsAreServedOnceByTheNewestState) {
  Volume volume;
  Attempt run(volume.options());
  SlowDisk disk(volume);
  const auto saves = train_under_pressure(run, disk, 12, [&] {
    if (run.source.step() < 8) run.checkpointer.request_save();
  });
  disk.finish();
  EXPECT_THAT(durable_steps(saves), ElementsAre(1, 6, 11));
}

TEST(Pressure, ALoopThatAnnouncesItsUpdates) {
  Volume volume;
  Attempt run(volume.options({SaveEvery::steps(1)}));
  SlowDisk disk(volume);
  std::vector<SaveHandle> saves;
  for (int i = 1; i <= 20; ++i) {
    run.checkpointer.before_update();
    if (!saves.empty()) disk.await(static_cast<int>(saves.size()));
    if (run.step().saved) saves.push_back(run.decision.save);
    if (i % kPeriod == 0) {
      disk.finish();
      EXPECT_EQ(saves.back().wait(), SaveStatus::durable);
    }
  }
  EXPECT_EQ(run.source.late_copies, 4);
  EXPECT_THAT(durable_steps(saves), ElementsAre(1, 6, 11, 16));
}

struct SecondImage : testing::Test {
  static CheckpointerOptions options(Volume& volume, std::int64_t every = 1) {
    auto options = volume.options({SaveEvery::steps(every)});
    options.writing.second_image = true;
    return options;
  }
  // One is being written, one waits.
  void fill() {
    run.step();
    first = run.decision.save;
    disk.await(1);
    run.step();
    second = run.decision.save;
  }
  Volume volume;
  Attempt run{options(volume)};
  SlowDisk disk{volume};
  SaveHandle first, second;
};

TEST_F(SecondImage, TheOneThatWaitsIsWrittenNext) {
  fill();
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(run.step().saved) << "both images are taken";
  EXPECT_EQ(second.status(), SaveStatus::staged);
  disk.finish();
  EXPECT_EQ(first.wait(), SaveStatus::durable);
  disk.await(2);
  EXPECT_TRUE(run.step().saved);
  disk.finish(2);
  EXPECT_EQ(second.wait(), SaveStatus::durable);
  EXPECT_EQ(run.decision.save.wait(), SaveStatus::durable);
  EXPECT_EQ(run.decision.save.step(), 8);
  EXPECT_EQ(run.source.copies, 3);
}

TEST_F(SecondImage, ASaveTakesThePlaceOfTheOneThatWaitsAndDoesNotWaitForTheDisk) {
  fill();
  run.step();
  const SaveHandle third = run.checkpointer.save();  // returns although the disk finishes nothing
  EXPECT_EQ(third.step(), 3);
  EXPECT_EQ(third.status(), SaveStatus::staged);
  EXPECT_EQ(second.status(), SaveStatus::overtaken);
  EXPECT_EQ(second.error(), "");
  disk.finish(2);
  EXPECT_EQ(third.wait(), SaveStatus::durable);
  EXPECT_EQ(first.status(), SaveStatus::durable);
  EXPECT_EQ(volume.checkpoints().size(), 2U);
}

TEST_F(SecondImage, AStopIsStagedAtOnceAndCommitted) {
  fill();
  run.checkpointer.request_stop("test");
  EXPECT_TRUE(run.step().stop);  // likewise
  EXPECT_EQ(second.status(), SaveStatus::overtaken);
  EXPECT_EQ(run.decision.save.status(), SaveStatus::staged);
  disk.finish(2);
  EXPECT_EQ(run.checkpointer.finish(), 75);
  EXPECT_EQ(run.checkpointer.last_durable().step, 3);
  EXPECT_EQ(disk.begun(), 2) << "nothing is written that nobody needs any more";
}

// What somebody asked for is not given up for the sake of the next one's image, unless time runs out.
TEST_F(SecondImage, ASaveThatWasAskedForKeepsItsImage) {
  run.step();
  disk.await(1);
  run.step();
  second = run.checkpointer.save();
  run.step();
  SaveStatus meanwhile{};
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    meanwhile = second.status();
    disk.finish(3);
  });
  const SaveHandle third = run.checkpointer.save();
  later.join();
  EXPECT_EQ(meanwhile, SaveStatus::staged);
  EXPECT_EQ(third.wait(), SaveStatus::durable);
}

TEST(Pressure, AStopWaitsForTheOnlyImageAndCommitsItsOwnStep) {
  Volume volume;
  Attempt run(volume.options({SaveEvery::steps(1)}));
  SlowDisk disk(volume);
  run.step();
  disk.await(1);
  run.checkpointer.request_stop("test");
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    disk.finish(2);
  });
  EXPECT_TRUE(run.step().stop);
  EXPECT_EQ(run.decision.save.step(), 2);
  later.join();
  EXPECT_EQ(run.checkpointer.finish(), 75);
  EXPECT_EQ(run.checkpointer.last_durable().step, 2);
}

}}  // namespace holdfast::test
