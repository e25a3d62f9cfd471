// One checkpoint file, written by all ranks of a run: threads as ranks, each with faults before its own view
// of one volume.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <map>
#include <set>
#include <utility>

#include "holdfast/writing/file_verifier.h"
#include "together.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::SizeIs;

class SharedCheckpoint : public Together {
 protected:
  SharedCheckpoint() {
    seers = 4;
    elements = 30'000;
    options.every = {SaveEvery::steps(4)};
  }
  // What the file holds; nullptr when it is not whole.
  static std::shared_ptr<Snapshot> content(const MemoryFileSystem& disk, const std::string& name) {
    MemoryFileSystem copy = disk.copy();
    FileVerifier verifier;
    auto loaded = verifier.load(*copy.open_file(std::string(kRun) + "/" + name, OpenMode::read));
    if (std::holds_alternative<Rejection>(loaded)) return nullptr;
    return std::get<FileVerifier::Loaded>(loaded).snapshot;
  }
  void expect_whole() const {
    for (const std::string& name : volume->checkpoints()) {
      EXPECT_NE(content(volume->disk, name), nullptr) << name;
    }
  }
  bool wrote(int rank) {
    for (const Operation& operation : member(rank).view.log()) {
      if (operation.kind == Op::write) return true;
    }
    return false;
  }
  static void to_the_end(Member& one) {
    one.train_to(14);
    one.finish();
  }
};

TEST_F(SharedCheckpoint, IsTheFileThatRankZeroAloneWrites) {
  for (const int ranks : {2, 4}) {
    for (const bool uneven : {false, true}) {
      uneven_buffers = uneven;
      seers = 1;
      start_over();
      live(ranks, to_the_end);
      EXPECT_THAT(errors(), Each(std::string()));
      const auto names = volume->checkpoints();
      std::map<std::string, std::vector<std::byte>> alone;
      for (const std::string& name : names) alone[name] = volume->disk.get(volume->path(name));
      ASSERT_THAT(names, SizeIs(3));

      seers = ranks;
      start_over();
      live(ranks, to_the_end);
      expect_all_ended(0);
      EXPECT_EQ(volume->checkpoints(), names);
      for (const auto& [name, bytes] : alone) {
        EXPECT_EQ(volume->disk.get(volume->path(name)), bytes) << name << " of " << ranks;
      }
      EXPECT_TRUE(wrote(1)) << "and so was the last one, in finish()";
      for (const auto& one : members) EXPECT_EQ(one->checkpointer->last_durable().step, 14);
    }
  }
}

TEST_F(SharedCheckpoint, OfBuffersRankZerosAreInTheFile) {
  uneven_buffers = true;
  live(3, to_the_end);
  EXPECT_EQ(member(2).source.batches(), 2014);
  live(3, [](Member& one) {
    EXPECT_EQ(one.source.batches(), 14);
    one.finish();
  });
  EXPECT_THAT(errors(), Each(std::string()));
  EXPECT_TRUE(member(1).resumed.bit_exact);
}

TEST_F(SharedCheckpoint, EachOfTwoRanksStagesHalf) {
  elements = 1'200'000;  // one piece a tensor, and as much momentum
  live(2, [](Member& one) {
    one.train_to(6);
    const std::uint64_t before = one.source.copied_bytes;
    one.train_to(8);
    EXPECT_THAT(one.saved, SizeIs(2));
    const std::uint64_t state = 2 * 4 * 1'200'000;
    EXPECT_LE(static_cast<double>(one.source.copied_bytes - before), 0.55 * static_cast<double>(state));
    EXPECT_LE(static_cast<double>(one.decision.save.figures().staged), 0.55 * static_cast<double>(state));
    EXPECT_GE(one.checkpointer->figures().last.staged, state / 3);
    one.finish();
  });
  EXPECT_THAT(errors(), Each(std::string()));
}

TEST_F(SharedCheckpoint, TakesAFewMessages) {
  std::atomic<int> saves{0};
  std::vector<int> told(4);
  live(4, [&](Member& one) {
    one.train_to(3);
    const int before = world->told(one.rank);
    one.train_to(40);
    told[static_cast<std::size_t>(one.rank)] = world->told(one.rank) - before;
    saves = static_cast<int>(one.saved.size());
    one.finish();
  });
  EXPECT_THAT(errors(), Each(std::string()));
  EXPECT_GE(saves, 7);
  EXPECT_EQ(told[0], 2 * saves);
  for (int rank = 1; rank < 4; ++rank) EXPECT_EQ(told[static_cast<std::size_t>(rank)], saves);
}

TEST_F(SharedCheckpoint, WhoDoesNotSeeTheVolumeSendsWhatIsItsOwn) {
  seers = 2;
  live(3, to_the_end);
  EXPECT_THAT(errors(), Each(std::string()));
  EXPECT_TRUE(wrote(1));
  EXPECT_FALSE(wrote(2));
  const auto own_then = own();
  const auto then = states();
  for (const int able : {2, 3, 1}) {
    seers = able;
    live(3, [](Member& one) { one.finish(); });
    EXPECT_THAT(errors(), Each(std::string())) << able;
    EXPECT_EQ(own(), own_then);
    EXPECT_EQ(states(), then);
    // Who sees the file reads it; sent is no more than its head when all do.
    const std::uint64_t file = volume->disk.get(volume->path(volume->checkpoints().back())).size();
    EXPECT_EQ(world->broadcast() > file, able < 3) << able;
  }
}

TEST_F(SharedCheckpoint, CanBeTurnedOff) {
  options.ranks.shared_write = false;
  live(2, to_the_end);
  EXPECT_THAT(errors(), Each(std::string()));
  EXPECT_FALSE(wrote(1));
}

// Whatever goes wrong with one rank's share costs one save.
TEST_F(SharedCheckpoint, ABrokenDiskOnOneRankCostsOneSave) {
  for (const Op broken : {Op::open_directory, Op::open_overwrite, Op::write, Op::sync_file, Op::close}) {
    for (const int code : {EIO, ENOSPC}) {
      CapturedLog log;
      start_over();
      live(3, [&](Member& one) {
        one.train_to(3);
        if (one.rank == 2) one.view.fail(broken, 1, code, {.for_ever = true});
        one.train_to(4);
        // Not later: the save is made again as soon as its failure is known, which may be at the next step.
        EXPECT_THAT(one.saved, testing::ElementsAre(4));
        one.train_to(20);
        one.finish();
      });
      SCOPED_TRACE(std::string(name_of(broken)) + " " + std::to_string(code));
      expect_all_ended(0);
      EXPECT_GE(member(2).view.faults_fired(), 1);
      expect_whole();
      EXPECT_EQ(member(0).checkpointer->figures().failed, 1);
      EXPECT_GE(member(0).checkpointer->figures().durable, 3);
      EXPECT_EQ(member(0).checkpointer->last_durable().step, 20);
      EXPECT_THAT(log.text(), AllOf(HasSubstr("step 4 failed: rank 2 could not write its share"),
                                    HasSubstr("rank 0 writes the checkpoints of this attempt alone")));
    }
  }
}

TEST_F(SharedCheckpoint, ABrokenDiskOnRankZeroChangesNothingForTheOthers) {
  CapturedLog log;
  for (int nth = 1; nth <= 12; ++nth) {
    start_over();
    live(2, [&](Member& one) {
      one.train_to(3);
      if (one.rank == 0) volume->faults.fail_mutation(nth, EIO);
      one.train_to(20);
      one.finish();
    });
    SCOPED_TRACE(nth);
    EXPECT_THAT(errors(), Each(std::string()));
    EXPECT_EQ(codes()[0], codes()[1]);
    expect_whole();
    if (codes()[0] == 0) {
      EXPECT_EQ(member(1).checkpointer->last_durable().step, 20);
    }
  }
}

TEST_F(SharedCheckpoint, WhatOneRankCannotCopyFailsThatSaveAlone) {
  CapturedLog log;
  live(2, [](Member& one) {
    one.train_to(3);
    bool failed = false;
    if (one.rank == 1) {
      one.source.on_copy = [&] {
        if (!std::exchange(failed, true)) throw std::bad_alloc();
      };
    }
    one.train_to(20);
    one.finish();
  });
  expect_all_ended(0);
  EXPECT_EQ(member(0).checkpointer->figures().failed, 1);
  EXPECT_THAT(log.text(), HasSubstr("rank 1 could not write its share: "));
}

// They are told at once, and wait for nothing.
TEST_F(SharedCheckpoint, WhatRankZeroCannotCopyKeepsNobodyBusy) {
  CapturedLog log;
  live(2, [](Member& one) {
    one.train_to(3);
    bool failed = false;
    if (one.rank == 0) {
      one.source.on_copy = [&] {
        if (!std::exchange(failed, true)) throw std::bad_alloc();
      };
    }
    one.train_to(20);
    EXPECT_GE(one.checkpointer->last_durable().step, 9);
    one.finish();
  });
  expect_all_ended(0);
  EXPECT_EQ(member(0).checkpointer->figures().failed, 1);
  EXPECT_EQ(member(1).checkpointer->figures().failed, 1);
  EXPECT_TRUE(wrote(1)) << "the next ones are shared again";
}

// The plans differ for one save, which rank 0 writes by itself; then they are the same again.
TEST_F(SharedCheckpoint, AttributesThatOutgrowTheirRoomCostNoSave) {
  live(2, [](Member& one) {
    one.train_to(6);
    if (one.rank == 0) one.source.extra["notes"] = std::string(600'000, 'n');
    one.train_to(30);
    EXPECT_GE(one.saved.size(), 5U);
    one.train_to(32);
    one.finish();
  });
  expect_all_ended(0);
  EXPECT_EQ(member(0).checkpointer->figures().failed, 0);
  EXPECT_LT(member(0).checkpointer->figures().last.staged, 160'000u) << "half again";
  expect_whole();
}

TEST_F(SharedCheckpoint, ARankThatDiesInASaveEndsTheOthersAndNothingHalfIsThere) {
  for (const Op when : {Op::open_overwrite, Op::write, Op::sync_file}) {
    CapturedLog log;
    start_over();
    options.keep = KeepLast{10};  // rank 0 may save several times until it learns of the loss
    live(3, [&](Member& one) {
      one.train_to(6);
      if (one.rank == 2) {
        one.view.set_hook([&](const Operation& operation) {
          if (operation.kind != when) return;
          world->lose(2);
          throw Error("a process that is gone");
        });
      }
      one.train_to(20);
      one.finish();
    });
    SCOPED_TRACE(name_of(when));
    EXPECT_EQ(member(0).error.substr(0, 3), "75 ");
    EXPECT_EQ(member(1).error.substr(0, 3), "75 ");
    // Rank 0 may still have saved alone what it held when it learned of the loss.
    EXPECT_THAT(volume->checkpoints(), testing::Contains(HasSubstr("step-000000000004-")));
    expect_whole();
    live(3, to_the_end);
    EXPECT_THAT(errors(), Each(std::string()));
    EXPECT_GE(member(2).resumed.step, 4);
    EXPECT_EQ(member(2).resumed.step, member(0).resumed.step);
  }
}

// Its disk does not answer, its training goes on. The others wait for a third of the time that is left, and
// then rank 0 saves by itself.
TEST_F(SharedCheckpoint, AShareThatHangsDoesNotEatTheTimeThatIsLeft) {
  CapturedLog log;
  Gate gate;
  live(2, [&](Member& one) {
    if (one.rank == 1) {
      one.view.set_hook([&](const Operation& operation) {
        if (operation.kind == Op::sync_file) gate.pass();
      });
    }
    one.patient = false;
    one.train_to(6);
    if (one.rank == 0) one.announcer.deadline(one.clock.now() + 600s);
    if (one.rank == 1) gate.await_arrival();
    while (one.checkpointer->last_durable().step < 6 && one.source.step() < 250) {
      one.step();
      std::this_thread::sleep_for(20ms);
    }
    EXPECT_GE(one.checkpointer->last_durable().step, 6) << one.rank;
    EXPECT_LT(one.source.step(), 250) << one.rank;
    one.train_to(260);
    if (one.rank == 1) gate.open();
    one.finish();
  });
  gate.open();
  expect_all_ended(0);
  EXPECT_THAT(log.text(), HasSubstr("rank 1 did not report its share of the checkpoint: no answer within"));
  expect_whole();
}

TEST_F(SharedCheckpoint, AStopIsSavedByAll) {
  options.every = {};
  live(3, [](Member& one) {
    one.train_to(7);
    if (one.rank == 2) one.announcer.stop(one.clock.now() + 1h);
    one.train_to(20);
    one.finish();
  });
  expect_all_ended(75);
  EXPECT_TRUE(wrote(2));
  EXPECT_THAT(volume->checkpoints(), testing::ElementsAre(HasSubstr("step-000000000009-")));
  expect_whole();
}

// What only a save needs is not fetched for a save that cannot be.
TEST_F(SharedCheckpoint, AHopelessStopWaitsForNothing) {
  CapturedLog log;
  volume->faults.set_hook([&](const Operation& operation) {
    if (operation.kind == Op::sync_file && operation.path.find("step-") != std::string::npos) {
      volume->clock.advance(30s);
    }
  });
  std::vector<std::int64_t> brought(2);
  live(2, [&](Member& one) {
    one.train_to(12);
    const std::int64_t before = one.source.brought_together;
    if (one.rank == 1) one.announcer.stop(one.clock.now() + 20s);
    one.train_to(30);
    one.finish();
    brought[static_cast<std::size_t>(one.rank)] = one.source.brought_together - before;
  });
  expect_all_ended(75);
  EXPECT_EQ(brought, (std::vector<std::int64_t>{0, 0}));
  EXPECT_THAT(log.text(), HasSubstr("no time for a save of step"));
}

TEST_F(SharedCheckpoint, ANewerAttemptEndsAllRanks) {
  CapturedLog log;
  live(2, [&](Member& one) {
    one.train_to(6);
    if (one.rank == 0) {
      FileVerifier verifier;
      CheckpointStore rival(volume->disk, volume->clock, {.directory = kRun}, verifier);
      rival.preflight();
      rival.claim();
    }
    one.train_to(40);
    one.finish();
  });
  expect_all_ended(76);
  EXPECT_LT(member(1).source.step(), 40);
}

// A claim would end the attempt that runs.
TEST_F(SharedCheckpoint, ARankWithOtherOptionsIsRefusedBeforeTheClaim) {
  for (const int able : {1, 2}) {
    seers = able;
    odd_one = -1;
    start_over();
    live(2, to_the_end);
    const auto before = volume->disk.names(kRun);
    odd_one = 1;
    live(2, to_the_end);
    EXPECT_THAT(errors(), Each(AllOf(testing::StartsWith("78 "), HasSubstr("learning_rate"))));
    EXPECT_THAT(member(0).error, HasSubstr("rank 1: "));
    EXPECT_EQ(volume->disk.names(kRun), before);
  }
}

// At every mutating call of any rank: what survives is a run to go on from, no older than what was known.
TEST_F(SharedCheckpoint, PowerThatIsCutLeavesWhatWasAcknowledged) {
  struct Cut {
    MemoryFileSystem disk;
    std::int64_t known;
    std::string before;
  };
  std::vector<Cut> cuts;
  std::mutex mutex;
  std::atomic<std::int64_t> known{-1};
  const auto cut = [&](const Operation& operation) {
    if (!operation.mutating) return;
    const std::lock_guard lock(mutex);
    cuts.push_back(
        {cuts.size() % 2 == 0 ? volume->disk.crash() : volume->disk.copy(), known.load(), operation.text()});
  };
  volume->faults.set_hook(cut);
  live(2, [&](Member& one) {
    if (one.rank == 1) one.view.set_hook(cut);
    while (one.source.step() < 14) {
      one.step();
      if (one.rank == 0) known = one.checkpointer->last_durable().step;
    }
    one.finish();
    one.view.set_hook(nullptr);
  });
  volume->faults.set_hook(nullptr);
  EXPECT_THAT(errors(), Each(std::string()));
  ASSERT_GT(cuts.size(), 40u);
  for (std::size_t i = 0; i < cuts.size(); i += 3) {
    SCOPED_TRACE("power lost before " + cuts[i].before);
    auto disk = cuts[i].disk.copy();
    disk.mount("/vol");
    FileVerifier verifier;
    FakeClock clock;
    CheckpointStore store(disk, clock, {.directory = kRun, .allow_fresh = true}, verifier);
    const Selection found = store.preflight();
    EXPECT_GE(found.newest ? found.newest->step : -1, cuts[i].known);
    EXPECT_TRUE(found.skipped.empty());
  }
}

}}  // namespace holdfast::test
