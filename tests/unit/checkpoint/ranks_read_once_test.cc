// One rank of a machine reads the checkpoint and verifies it; the others of that machine map its image.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "holdfast/ranks/shared_image.h"
#include "together.h"

namespace holdfast::test { namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

class ReadOnce : public Together {
 protected:
  ReadOnce() {
    one_machine = true;
    seers = 4;
    elements = 100'000;
    options.every = {SaveEvery::steps(4)};
  }
  void first_life(int ranks = 4) {
    live(ranks, [](Member& one) {
      one.train_to(10);
      one.finish();
    });
    EXPECT_THAT(errors(), Each(std::string()));
    newest = volume->checkpoints().back();
    bytes = volume->disk.get(volume->path(newest)).size();
    states_then = states();
    volume->faults.clear_log();
  }
  void next_life(int ranks = 4) {
    live(ranks, [](Member& one) { one.finish(); });
  }
  // How often each rank has read the newest checkpoint as a whole, rounded.
  std::vector<int> reads() {
    return of_all<int>([&](Member& one) {
      std::uint64_t read = 0;
      for (const Operation& operation : (one.rank == 0 ? volume->faults : one.view).log()) {
        if (operation.kind == Op::read && operation.path == volume->path(newest)) read += operation.length;
      }
      return static_cast<int>((read + bytes / 2) / bytes);
    });
  }
  void all_went_on() {
    EXPECT_THAT(errors(), Each(std::string()));
    EXPECT_THAT(steps(), Each(10));
    EXPECT_EQ(states(), states_then);
  }

  std::string newest;
  std::uint64_t bytes = 0;
  std::vector<std::string> states_then;
};

TEST_F(ReadOnce, RankZeroReadsForItsMachine) {
  first_life();
  next_life();
  all_went_on();
  EXPECT_THAT(reads(), ElementsAre(1, 0, 0, 0));
  EXPECT_LT(world->broadcast(), bytes / 2) << "nothing but the head is sent";
  for (const auto& one : members) EXPECT_TRUE(one->resumed.bit_exact);
}

TEST_F(ReadOnce, OneRankReadsForEachOtherMachine) {
  machines = {{2, "second"}, {3, "second"}};
  first_life();
  next_life();
  all_went_on();
  EXPECT_THAT(reads(), ElementsAre(1, 0, 1, 0));
  EXPECT_LT(world->broadcast(), bytes / 2);
}

TEST_F(ReadOnce, AMachineWithoutTheVolumeGetsTheBytesFromMemory) {
  machines = {{2, "second"}, {3, "second"}};
  seers = 2;
  first_life();
  next_life();
  all_went_on();
  EXPECT_THAT(reads(), ElementsAre(1, 0, 0, 0)) << "rank 0 sends what it has in memory";
  EXPECT_GE(world->broadcast(), bytes);
}

TEST_F(ReadOnce, RanksThatDoNotShareTheWritingShareTheReading) {
  options.ranks.shared_write = false;
  first_life();
  next_life();
  all_went_on();
  EXPECT_THAT(reads(), ElementsAre(1, 0, 0, 0));
  EXPECT_LT(world->broadcast(), bytes / 2);
}

TEST_F(ReadOnce, AnotherNumberOfRanksGoesOn) {
  first_life(2);
  next_life(4);
  EXPECT_THAT(errors(), Each(std::string()));
  EXPECT_THAT(steps(), Each(10));
  EXPECT_THAT(reads(), ElementsAre(1, 0, 0, 0));
  next_life(1);
  EXPECT_THAT(errors(), Each(std::string()));
  EXPECT_THAT(steps(), Each(10));
}

TEST_F(ReadOnce, WhatIsReadAheadIsShared) {
  first_life();
  before = [](Member& one) { one.checkpointer->read_ahead(); };
  next_life();
  all_went_on();
  EXPECT_THAT(reads(), ElementsAre(1, 0, 0, 0));
}

TEST_F(ReadOnce, APeekReadsNothingMore) {
  first_life();
  before = [](Member& one) { EXPECT_EQ(one.checkpointer->peek()->step, 10); };
  next_life();
  all_went_on();
  EXPECT_THAT(reads(), ElementsAre(1, 0, 0, 0));
}

TEST_F(ReadOnce, AFileElsewhereIsSharedToo) {
  first_life();
  const auto file = volume->disk.get(volume->path(newest));
  start_over();
  volume->disk.put("/vol/elsewhere.h5", file);
  options.start.resume_from = "/vol/elsewhere.h5";
  next_life();
  all_went_on();
  EXPECT_LT(world->broadcast(), bytes / 2) << "nothing but the head is sent";
}

TEST_F(ReadOnce, WeightsOfAFreshStartComeFromRankZero) {
  first_life();
  const auto file = volume->disk.get(volume->path(newest));
  start_over();
  volume->disk.put("/vol/elsewhere.h5", file);
  options.start.init_from = "/vol/elsewhere.h5";
  next_life();
  EXPECT_THAT(errors(), Each(std::string()));
  EXPECT_THAT(steps(), Each(0));
}

TEST_F(ReadOnce, AllAgreeOnTheOlderOneIfTheNewestIsDamaged) {
  CapturedLog log;
  first_life();
  volume->disk.flip_bit(volume->path(newest), bytes - 1000);
  next_life();
  EXPECT_THAT(errors(), Each(std::string()));
  EXPECT_THAT(steps(), Each(8));
  EXPECT_THAT(log.text(), HasSubstr("skipped " + newest));
}

// What rank 0 has in memory is whole; so the others never see the damage.
TEST_F(ReadOnce, DamageThatOneRankAloneWouldSeeHarmsNobody) {
  first_life();
  before = [](Member& one) {
    if (one.rank == 1) one.view.fail(Op::read, 1, EIO, {.for_ever = true});
  };
  options.ranks.shared_write = false;  // finding the volume reads a file as well
  next_life();
  all_went_on();
}

// All that wait for the rank that reads for their machine end with its error, as it does.
TEST_F(ReadOnce, ARankThatCannotReadForItsMachineEndsTheStart) {
  CapturedLog log;
  machines = {{2, "second"}, {3, "second"}};
  first_life();
  before = [&](Member& one) {
    if (one.rank != 2) return;
    one.view.set_hook([&](const Operation& operation) {
      if (operation.kind == Op::read && operation.offset > 0 && operation.path == volume->path(newest)) {
        throw IoError("read", operation.path, EIO);
      }
    });
  };
  next_life();
  EXPECT_THAT(member(2).error, AllOf(HasSubstr("74 "), HasSubstr(newest)));
  EXPECT_THAT(member(3).error, AllOf(HasSubstr("74 "), HasSubstr("rank 2: ")));
  EXPECT_THAT(member(0).error, AllOf(HasSubstr("74 "), HasSubstr("rank 2: ")));
}

TEST_F(ReadOnce, ARankThatDiesWhileItReadsForItsMachineEndsTheStart) {
  CapturedLog log;
  machines = {{2, "second"}, {3, "second"}};
  first_life();
  before = [&](Member& one) {
    if (one.rank != 2) return;
    one.view.set_hook([&](const Operation& operation) {
      if (operation.kind != Op::read || operation.offset == 0 || operation.path != volume->path(newest))
        return;
      world->lose(2);
      throw Error("a process that is gone");
    });
  };
  next_life();
  for (const int rank : {0, 1, 3}) EXPECT_NE(member(rank).error, "") << rank;
  machines = {};
  before = {};
  next_life();
  all_went_on();
}

// A rank in another container of the machine.
TEST_F(ReadOnce, WhoCannotHaveTheImageReadsAndTheLogSaysWhy) {
  CapturedLog log;
  const std::string host = internal::own_host();
  machines = {{1, host.substr(0, host.find(' ')) + " 1 1"}};
  first_life();
  next_life();
  all_went_on();
  EXPECT_THAT(reads(), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(log.text(), HasSubstr("rank 1 does not take the checkpoint from rank 0's memory"));
}

}}  // namespace holdfast::test
