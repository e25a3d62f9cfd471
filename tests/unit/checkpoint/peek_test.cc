// peek() tells what resume() will take, and leaves everything as it is.
#include <cerrno>

#include "holdfast/format/reader.h"
#include "holdfast/mirror/mirror.h"
#include "holdfast/writing/file_verifier.h"
#include "together.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr MemorySource::Options kPeekedLarge{.elements = 100'000};
constexpr char kPeekedHome[] = "/efs/run";

class Peek : public testing::Test {
 protected:
  void train(std::int64_t last, MemorySource::Options state = {}) {
    Attempt attempt(volume.options({SaveEvery::steps(4)}), state);
    attempt.train_to(last);
    EXPECT_EQ(attempt.checkpointer.finish(), 0);
  }
  std::optional<Peeked> peek(const CheckpointerOptions& options) {
    MemorySource source;
    return Checkpointer(source, options).peek();
  }
  void expect_nothing_written() {
    for (const Operation& operation : volume.faults.log())
      EXPECT_FALSE(operation.mutating) << operation.text();
  }
  Volume volume;
  CapturedLog log;
};

TEST_F(Peek, AFreshRunHasNothingToSee) {
  EXPECT_FALSE(peek(volume.options()));
  expect_nothing_written();
  Attempt attempt(volume.options());
  EXPECT_TRUE(attempt.resumed.fresh);
  EXPECT_EQ(attempt.checkpointer.attempt(), 1U) << "a peek claims nothing";
}

TEST_F(Peek, TellsStepOptionsAndShapes) {
  train(6, {.elements = 300, .learning_rate = 0.25});
  volume.faults.clear_log();
  MemorySource source({.elements = 300, .learning_rate = 0.25});
  Checkpointer checkpointer(source, volume.options());
  const auto peeked = checkpointer.peek();
  ASSERT_TRUE(peeked);
  expect_nothing_written();
  EXPECT_EQ(peeked->step, 6);
  EXPECT_EQ(peeked->checkpoint, "step-000000000006-a0001.h5");
  EXPECT_EQ(peeked->options.size(), 1U);
  EXPECT_EQ(peeked->options.get_double("options.learning_rate"), 0.25);
  EXPECT_EQ(peeked->attributes.get_int("step"), 6);
  ASSERT_NE(peeked->tensor("model/weight"), nullptr);
  EXPECT_EQ(*peeked->tensor("model/weight"), (TensorSpec{"model/weight", DType::float32, {300}}));
  EXPECT_EQ(peeked->tensor("model/colour"), nullptr);
  EXPECT_EQ(source.loads, 0);
  EXPECT_EQ(source.step(), 0);

  const Resumed resumed = checkpointer.resume();
  EXPECT_EQ(resumed.checkpoint, peeked->checkpoint);
  EXPECT_EQ(resumed.step, 6);
}

TEST_F(Peek, TheProgramBuildsItselfToWhatItSees) {
  train(5, {.elements = 77});
  MemorySource::Options made;
  made.elements = static_cast<std::size_t>(peek(volume.options())->tensor("model/weight")->shape[0]);
  Attempt attempt(volume.options(), made);
  EXPECT_EQ(attempt.resumed.step, 5);
}

// Reads of tensors; heads are looked at again and again.
TEST_F(Peek, TheStateIsReadOnceForPeekAndResumeAlsoAfterAReadAhead) {
  train(4, kPeekedLarge);
  for (const bool ahead : {false, true}) {
    const auto file = volume.disk.open_file(volume.path("step-000000000004-a0001.h5"), OpenMode::read);
    const std::uint64_t head = std::get<CheckpointIndex>(read_index(*file)).user_block;
    volume.faults.clear_log();
    MemorySource source(kPeekedLarge);
    Checkpointer checkpointer(source, volume.options());
    if (ahead) checkpointer.read_ahead();
    EXPECT_EQ(checkpointer.peek()->step, 4);
    EXPECT_EQ(checkpointer.peek()->step, 4) << "as often as the program likes";
    EXPECT_EQ(checkpointer.resume().step, 4);
    std::uint64_t sum = 0;
    for (const Operation& operation : volume.faults.log()) {
      if (operation.kind == Op::read && operation.offset >= head) sum += operation.length;
    }
    EXPECT_EQ(sum, (file->size() + 4095) / 4096 * 4096 - head) << ahead;
  }
}

TEST_F(Peek, ADamagedFileIsPassedOver) {
  train(6);
  const std::string newest = volume.path("step-000000000006-a0001.h5");
  volume.disk.flip_bit(newest, volume.disk.get(newest).size() - 100);
  volume.faults.clear_log();
  const auto peeked = peek(volume.options());
  ASSERT_TRUE(peeked);
  EXPECT_EQ(peeked->step, 4);
  expect_nothing_written();
  Attempt attempt(volume.options());
  EXPECT_EQ(attempt.resumed.step, 4);
}

TEST_F(Peek, WhereNothingVerifiesItRefusesAsResumeDoes) {
  train(3);
  const std::string only = volume.path("step-000000000003-a0001.h5");
  volume.disk.flip_bit(only, volume.disk.get(only).size() - 100);
  EXPECT_THROW(peek(volume.options()), RefusedError);
  CheckpointerOptions anew = volume.options();
  anew.start.allow_fresh = true;
  EXPECT_FALSE(peek(anew));
}

TEST_F(Peek, WhatCannotBeReadIsAnError) {
  train(3);
  volume.faults.fail(Op::read, 1, EACCES, {.for_ever = true});
  EXPECT_THROW(peek(volume.options()), IoError);
}

TEST_F(Peek, FollowsResumeFrom) {
  train(8);
  CheckpointerOptions options = volume.options();
  options.start.resume_from = "4";
  EXPECT_EQ(peek(options)->step, 4);
  options.start.resume_from = "5";
  EXPECT_THROW(peek(options), RefusedError);

  volume.disk.open_directory("/vol/other", true);
  volume.disk.put("/vol/other/kept.h5", volume.disk.get(volume.path("step-000000000004-a0001.h5")));
  options.start.resume_from = "/vol/other/kept.h5";
  MemorySource source;
  Checkpointer checkpointer(source, options);
  const auto peeked = checkpointer.peek();
  EXPECT_EQ(peeked->checkpoint, "/vol/other/kept.h5");
  EXPECT_EQ(peeked->step, 4);
  const Resumed resumed = checkpointer.resume();
  EXPECT_EQ(resumed.checkpoint, "/vol/other/kept.h5");
  EXPECT_TRUE(resumed.branch);
}

TEST_F(Peek, WhatCameSinceIsTakenByResume) {
  train(4);
  MemorySource source;
  Checkpointer checkpointer(source, volume.options());
  EXPECT_EQ(checkpointer.peek()->step, 4);
  train(7);
  EXPECT_EQ(checkpointer.resume().step, 7);
}

TEST_F(Peek, ComesBeforeResume) {
  Attempt attempt(volume.options());
  EXPECT_THROW(attempt.checkpointer.peek(), UsageError);
  attempt.train_to(1);
  attempt.checkpointer.finish();
  EXPECT_THROW(attempt.checkpointer.peek(), UsageError);
}

TEST_F(Peek, AnEmptyMountPointIsWaitedFor) {
  train(2);
  volume.disk.unmount("/vol");
  CheckpointerOptions options = volume.options();
  options.start.mount_wait = 3s;
  EXPECT_THROW(peek(options), IoError);
}

class PeekHome : public Peek {
 protected:
  CheckpointerOptions options(const char* directory = kRun) {
    CheckpointerOptions options = volume.options({SaveEvery::steps(4)});
    options.mount.clear();
    options.directory = directory;
    options.start.home = kPeekedHome;
    options.start.home_wait = 5s;
    return options;
  }
  void train_home(std::int64_t last) {
    Attempt attempt(options());
    attempt.train_to(last);
    EXPECT_EQ(attempt.checkpointer.finish(), 0);
    FileVerifier verifier;
    verifier.stop_keeping();
    holdfast::Pace pace(volume.clock);
    const auto home = open_home({.place = kPeekedHome}, volume.disk, verifier, pace);
    Mirror(volume.disk, verifier, *home, {.directory = kRun, .once = true}, pace).run();
    volume.faults.clear_log();
  }
};

TEST_F(PeekHome, AnEmptyDiskSeesWhatResumeWillFetch) {
  train_home(6);
  MemorySource source;
  Checkpointer checkpointer(source, options("/vol/other"));
  const auto peeked = checkpointer.peek();
  ASSERT_TRUE(peeked);
  EXPECT_EQ(peeked->step, 6);
  EXPECT_EQ(peeked->checkpoint, "step-000000000006-a0001.h5");
  expect_nothing_written();
  EXPECT_EQ(checkpointer.resume().step, 6);
}

TEST_F(PeekHome, WhatIsNewerHereCounts) {
  train_home(6);
  {
    CheckpointerOptions alone = options();
    alone.start.home.clear();
    Attempt attempt(alone);
    attempt.train_to(9);
    EXPECT_EQ(attempt.checkpointer.finish(), 0);
  }
  EXPECT_EQ(peek(options())->step, 9);
}

TEST_F(PeekHome, AHeadThatIsDamagedThereIsPassedOver) {
  train_home(6);
  volume.disk.flip_bit(std::string(kPeekedHome) + "/step-000000000006-a0001.h5", 600);
  EXPECT_EQ(peek(options("/vol/other"))->step, 4);
}

TEST_F(PeekHome, AnEmptyHomeIsAFreshRun) { EXPECT_FALSE(peek(options())); }

class PeekOfRanks : public Together {};

TEST_F(PeekOfRanks, AllRanksSeeWhatRank0Sees) {
  std::vector<std::string> seen(3);
  before = [&](Member& one) {
    for (int call = 0; call < 2; ++call) {
      const auto peeked = one.checkpointer->peek();
      seen[static_cast<std::size_t>(one.rank)] =
          peeked ? peeked->checkpoint + " " + std::to_string(peeked->tensors.size()) : "fresh";
    }
  };
  live(3, [](Member& one) {
    one.train_to(4);
    one.finish();
  });
  expect_all_ended(0);
  EXPECT_THAT(seen, Each("fresh"));
  live(3, [](Member& one) {
    EXPECT_EQ(one.resumed.step, 4);
    one.train_to(5);
    one.finish();
  });
  expect_all_ended(0);
  EXPECT_THAT(seen, Each(AllOf(HasSubstr("step-000000000004-a0001.h5"), testing::StrEq(seen[0]))));
}

TEST_F(PeekOfRanks, AnErrorOfRank0IsThrownOnAll) {
  live(2, [](Member& one) {
    one.train_to(4);
    one.finish();
  });
  options.start.resume_from = "3";
  before = [](Member& one) { one.checkpointer->peek(); };
  live(2, [](Member&) { ADD_FAILURE(); });
  EXPECT_THAT(errors(), Each(AllOf(HasSubstr("78"), HasSubstr("3"))));
}

}}  // namespace holdfast::test
