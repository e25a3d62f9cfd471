// `resume_from` in a command that is repeated: by a supervisor, systemd or Kubernetes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "holdfast/store/run_state.h"
#include "together.h"

namespace holdfast::test { namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr char kFour[] = "step-000000000004-a0001.h5";
constexpr char kOutside[] = "/vol/other/kept.h5";

class ResumeFrom : public testing::Test {
 protected:
  // Attempt 1: steps 1..10, checkpoints at 4 and 8, then gone.
  ResumeFrom() { Attempt(volume.options({SaveEvery::steps(4)})).train_to(10); }

  CheckpointerOptions from(const std::string& choice, int keep = 3) {
    CheckpointerOptions options = volume.options({SaveEvery::steps(1)});
    options.start.resume_from = choice;
    options.keep = KeepLast{keep};
    return options;
  }
  // Lives of one command line, each killed after two saves. Checks where each begins.
  std::string lives(const CheckpointerOptions& options, std::int64_t first, int count) {
    std::string state;
    for (int life = 0; life < count; ++life) {
      Attempt attempt(options);
      const std::int64_t expected = first + 2 * life;
      EXPECT_EQ(attempt.resumed.step, expected) << "life " << life;
      EXPECT_EQ(attempt.resumed.branch, life == 0);
      attempt.train_to(expected + 2);
      state = attempt.state();
    }
    return state;
  }
  bool holds(const std::string& name) {
    const auto names = volume.checkpoints();
    return std::find(names.begin(), names.end(), name) != names.end();
  }

  Volume volume;
  CapturedLog log;
};

TEST_F(ResumeFrom, ARepeatedCommandGoesOnWithItsBranchAlsoWhenTheStartingPointIsGone) {
  EXPECT_EQ(lives(from("4", 2), 4, 6), state_after(16));
  EXPECT_FALSE(holds(kFour)) << "retention has not reached the case";
  EXPECT_THAT(log.text(), HasSubstr("resume_from 4: the newest checkpoint has grown from there"));
  EXPECT_TRUE(holds("step-000000000008-a0001.h5")) << "the other branch is nobody's to delete";
}

TEST_F(ResumeFrom, ByTheFilesName) {
  EXPECT_EQ(lives(from(kFour, 2), 4, 5), state_after(14));
  EXPECT_FALSE(holds(kFour));
}

TEST_F(ResumeFrom, ByTheFilesPath) {
  EXPECT_EQ(lives(from(volume.path(kFour), 2), 4, 5), state_after(14));
  EXPECT_FALSE(holds(kFour));
}

TEST_F(ResumeFrom, ByAFileElsewhereThatIsDeletedMeanwhile) {
  volume.disk.open_directory("/vol/other", true);
  volume.disk.put(kOutside, volume.disk.get(volume.path(kFour)));
  lives(from(kOutside), 4, 2);
  volume.disk.open_directory("/vol/other", false)->unlink("kept.h5");
  Attempt next(from(kOutside));
  EXPECT_EQ(next.resumed.step, 8);
  next.train_to(12);
  EXPECT_EQ(next.state(), state_after(12));
  EXPECT_THAT(log.text(), HasSubstr("a copy of that file under another name"));
}

TEST_F(ResumeFrom, ABranchWithoutACommitBeginsAgain) {
  Attempt(volume.options()).train_to(9);
  for (int life = 0; life < 3; ++life) {
    CheckpointerOptions options = from("4");
    options.every.clear();
    EXPECT_EQ(Attempt(options).resumed.step, 4);
  }
  lives(from("4"), 4, 2);
}

TEST_F(ResumeFrom, AnotherWordGoesBackOnceMore) {
  lives(from("4", 20), 4, 3);
  EXPECT_EQ(lives(from("4@again", 20), 4, 3), state_after(10));
  // A service whose command names the step goes on with it.
  EXPECT_EQ(Attempt(from("4", 20)).resumed.step, 10);
  EXPECT_EQ(Attempt(from("4@again", 20)).resumed.step, 10);
  EXPECT_EQ(Attempt(from(std::string(kFour) + "@third", 20)).resumed.step, 4);
  for (const char* const wrong : {"4@", "4@two words", "4@\n"}) {
    MemorySource source;
    EXPECT_THROW(Checkpointer(source, from(wrong)).resume(), UsageError) << wrong;
  }
}

// An ordinary resume is no choice: whoever names that step later goes back to it.
TEST_F(ResumeFrom, AStepThatALifeWentOnFromIsStillAChoice) {
  {
    Attempt second(volume.options({SaveEvery::steps(2)}));
    EXPECT_EQ(second.resumed.step, 8);
    second.train_to(12);
  }
  lives(from("8", 20), 8, 3);
  // A step of the branch is another choice than that from which it began.
  EXPECT_EQ(lives(from("10", 20), 10, 2), state_after(14));
  EXPECT_EQ(Attempt(from("8", 20)).resumed.step, 14) << "it has grown from both";
}

TEST_F(ResumeFrom, TheStartingPointStaysWhileItsBranchIsYoung) {
  Attempt branch(from("4", 3));
  for (std::int64_t step = 5; step <= 6; ++step) {
    branch.train_to(step);
    EXPECT_TRUE(holds(kFour)) << "at step " << step;
  }
  branch.train_to(7);
  EXPECT_TRUE(soon([&] { return !holds(kFour); })) << "the branch has three of its own";
}

TEST_F(ResumeFrom, WhereTheWholeBranchIsDamagedTheStartingPointCountsAgain) {
  {
    Attempt branch(from("4"));
    branch.train_to(5);
  }
  const std::string five = volume.path("step-000000000005-a0002.h5");
  volume.disk.flip_bit(five, volume.disk.get(five).size() - 1000);
  Attempt again(from("4"));
  EXPECT_EQ(again.resumed.step, 4) << "step 8 is of the abandoned branch";
  EXPECT_TRUE(again.resumed.branch);
}

// The start looks before the claim and after it.
TEST_F(ResumeFrom, WhereTheBranchCannotBeReadAfterTheClaimTheFileElsewhereCounts) {
  volume.disk.open_directory("/vol/other", true);
  volume.disk.put(kOutside, volume.disk.get(volume.path(kFour)));
  {
    Attempt branch(from(kOutside));
    branch.train_to(5);
  }
  bool claimed = false;
  volume.faults.set_hook([&](const Operation& operation) {
    claimed = claimed || operation.path.ends_with(claim_name(3));
    if (claimed && operation.kind == Op::read && operation.path.ends_with("a0002.h5"))
      throw IoError("read", operation.path, EIO, "bad sector");
  });
  Attempt again(from(kOutside));
  EXPECT_TRUE(claimed);
  EXPECT_EQ(again.resumed.step, 4) << "step 8 is of the abandoned branch";
  EXPECT_EQ(again.resumed.checkpoint, kOutside);
  EXPECT_TRUE(again.resumed.branch);
}

TEST_F(ResumeFrom, AStepThatNobodyBranchedFromIsRefused) {
  MemorySource source;
  EXPECT_THROW(Checkpointer(source, from("5")).resume(), RefusedError);
}

// Rank 0 decides for all.
TEST_F(Together, ARepeatedChoiceGoesOnWithItsBranchOnAllRanks) {
  options.every = {SaveEvery::steps(2)};
  options.keep = KeepLast{2};
  live(2, [](Member& one) { one.train_to(12); });
  EXPECT_THAT(errors(), testing::Each(std::string()));
  options.start.resume_from = "10";
  for (int life = 0; life < 4; ++life) {
    live(2, [life](Member& one) {
      EXPECT_EQ(one.resumed.step, 10 + 2 * life);
      EXPECT_EQ(one.resumed.branch, life == 0) << "rank " << one.rank;
      one.train_to(12 + 2 * life);
    });
    EXPECT_THAT(errors(), testing::Each(std::string()));
  }
  EXPECT_THAT(volume->checkpoints(), Not(Contains("step-000000000010-a0001.h5")));
}

// The file may be replaced, or written, while they start, by a job that keeps the newest weights there.
class WeightsThatChange : public Together {
 protected:
  // The weight of each rank after a start that `change` disturbs behind the claim.
  std::vector<float> weights_after(const std::function<void(const std::vector<std::byte>&)>& change) {
    options.every = {SaveEvery::steps(4)};
    live(1, [](Member& one) { one.train_to(9); });
    const std::vector<std::string> made = volume->checkpoints();
    EXPECT_GE(made.size(), 2U);
    volume->disk.open_directory("/vol/other", true);
    volume->disk.put(kWeights, volume->disk.get(volume->path(made.front())));
    const auto other = volume->disk.get(volume->path(made.back()));
    options.directory = "/vol/tuned";
    options.start.init_from = kWeights;
    volume->faults.set_hook([&, done = std::make_shared<bool>(false)](const Operation& operation) {
      if (*done || operation.path.find("tuned/attempts/") == std::string::npos) return;
      *done = true;
      change(other);
    });
    std::vector<float> weights(2);
    live(2, [&](Member& one) { weights[static_cast<std::size_t>(one.rank)] = one.source.weight(0); });
    return weights;
  }
  static constexpr char kWeights[] = "/vol/other/latest.h5";
};

TEST_F(WeightsThatChange, AreThoseThatRankZeroHasOpened) {
  const auto weights = weights_after([&](const auto& other) {
    volume->disk.open_directory("/vol/other", false)->unlink("latest.h5");
    volume->disk.put(kWeights, other);
  });
  EXPECT_THAT(errors(), testing::Each(std::string()));
  EXPECT_EQ(weights[0], weights[1]);
}

TEST_F(WeightsThatChange, EndTheStartWhereTheFileItselfIsWritten) {
  weights_after([&](const auto& other) {
    const auto own = volume->disk.get(kWeights);
    ASSERT_EQ(own.size(), other.size());
    for (std::size_t i = 0; i < own.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        if ((std::to_integer<int>(own[i] ^ other[i]) >> bit & 1) != 0)
          volume->disk.flip_bit(kWeights, i, bit);
      }
    }
  });
  EXPECT_THAT(errors(), testing::Each(HasSubstr("was written while the ranks were starting")));
}

// A standby waits for that word.
TEST_F(Together, AStartThatFailsBehindTheClaimIsRecorded) {
  seers = 2;
  options.every = {SaveEvery::steps(4)};
  live(2, [](Member& one) { one.train_to(6); });
  members.clear();  // they may still write their state
  volume->faults.set_hook([running = std::make_shared<bool>(false)](const Operation& operation) {
    *running = *running || operation.kind == Op::rename_over;  // the run state
    if (*running && operation.kind == Op::open_read && operation.path.find("step-") != std::string::npos)
      throw IoError("open", operation.path, ESTALE, "a server that was started again");
  });
  live(2, [](Member&) {});
  EXPECT_THAT(errors(), testing::Each(testing::StartsWith("74 ")));
  volume->faults.set_hook(nullptr);
  members.clear();
  const auto state = read_run_state(*volume->disk.open_directory(kRun, false));
  ASSERT_TRUE(state);
  EXPECT_EQ(state->phase, RunPhase::failed);
  EXPECT_EQ(state->exit_code, 74);
}

// Of a large state, from its own view of the volume.
TEST_F(Together, ARankThatReadsForLongIsWaitedFor) {
  seers = 2;
  options.every = {SaveEvery::steps(4)};
  live(2, [](Member& one) { one.train_to(6); });
  timeout = std::chrono::seconds(1);
  before = [](Member& one) {
    if (one.rank == 0) return;
    one.view.set_hook([slept = std::make_shared<std::atomic<bool>>(false)](const Operation& operation) {
      const bool state = operation.kind == Op::read && operation.path.find("step-") != std::string::npos;
      if (state && !slept->exchange(true)) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    });
  };
  live(2, [](Member& one) { EXPECT_GT(one.resumed.step, 0); });
  EXPECT_THAT(errors(), testing::Each(std::string()));
}

// supervise ends a training that stands still. That rank 0 waits for the others' loading is no stall.
TEST_F(Together, WhileOthersLoadTheLedgerSaysSo) {
  seers = 2;
  options.every = {SaveEvery::steps(4)};
  live(2, [](Member& one) { one.train_to(6); });
  members.clear();
  const auto ledger = [this] { return volume->disk.get_text(volume->path(ledger_name(2))); };
  const auto progress = [&](const char* phase) {
    return soon([&] {
      return ledger().find(std::string(R"("waited_ms":0.000,"risk_ms":0.000)") + phase) != std::string::npos;
    });
  };
  before = [&](Member& one) {
    if (one.rank == 0) return;
    one.view.set_hook([&, told = std::make_shared<std::atomic<bool>>(false)](const Operation& operation) {
      const bool state = operation.kind == Op::read && operation.path.find("step-") != std::string::npos;
      if (!state || ledger().empty() || told->exchange(true)) return;
      volume->clock.advance(std::chrono::seconds(11));
      EXPECT_TRUE(progress(R"(,"phase":"start"})")) << ledger();
    });
  };
  live(2, [&](Member& one) {
    if (one.rank != 0) return;
    one.clock.advance(std::chrono::seconds(11));
    EXPECT_TRUE(progress("}")) << ledger();
  });
  EXPECT_THAT(errors(), testing::Each(std::string()));
}

}}  // namespace holdfast::test
