// What people are told of saves that cannot be made, and of announced ends: the words, and how often.
#include <cerrno>
#include <cstdlib>
#include <thread>

#include "holdfast/mirror/home_record.h"
#include "noticed.h"
#include "together.h"

namespace holdfast::test { namespace {

using testing::Not;

std::size_t times_said(const std::string& log, const std::string& words) {
  std::size_t times = 0;
  for (std::size_t at = log.find(words); at != std::string::npos; at = log.find(words, at + 1)) ++times;
  return times;
}

class Warnings : public Noticed {
 protected:
  // A run beside which a mirror works.
  void start_mirrored() {
    options.start.home = "/efs/run";
    options.mount.clear();
    start_measured();
  }
  // The mirror has brought that step home, in a minute; −1: nothing is home.
  void mirror_said(std::int64_t step) {
    update_home_record(*volume.disk.open_directory(kRun, false), [&](const auto& there) {
      HomeRecord record = there.value_or(HomeRecord{});
      if (step >= 0) record.newest = FileId{.attempt = run->checkpointer.attempt(), .step = step};
      record.took_ms = 60'000;
      return record;
    });
    ASSERT_TRUE(soon([this] { return run->checkpointer.figures().home->took == 60s; }));
  }
};

TEST_F(Warnings, AnEvaluationThatGetsNoImageIsAFailedSave) {
  commit = {};
  start_measured();
  SlowDisk disk(volume);
  run->step();
  run->checkpointer.save();
  disk.await(1);
  run->step();
  std::atomic<bool> over{false};
  std::thread time([&] {
    while (!over) {
      volume.clock.advance(1s);
      std::this_thread::sleep_for(1ms);
    }
  });
  {
    const Checkpointer::EvaluationScope scope(run->checkpointer);
    over = true;
    time.join();
    EXPECT_EQ(run->checkpointer.figures().failed, 1);
  }
  EXPECT_THAT(run->step().failure.value_or(""), HasSubstr("the only image is still being written"));
  disk.finish(10);
  ASSERT_TRUE(soon([&] { return durable() == 11; }));
  EXPECT_FALSE(step().failure);
  const std::string said = log.text();
  EXPECT_THAT(said, HasSubstr("staging step 12 failed: the only image is still being written; a stop inside "
                              "this evaluation commits nothing newer"));
  EXPECT_THAT(said, Not(HasSubstr("is not saved now"))) << "nobody has asked for a save";
  EXPECT_THAT(said, Not(HasSubstr("cannot pass by itself"))) << "the write before it ends";
}

// What an evaluation needs in any case, and what the end of an epoch keeps for a save that may come.
TEST_F(Warnings, AStateThatCannotBeCopiedIsAFailedSaveInAnEvaluationAlone) {
  commit = {};
  start_measured();
  int failures = 0;
  const auto fails_once = [&] {
    run->source.on_copy = [&failures, at = failures + 1] {
      if (failures < at) throw Error("planted " + std::to_string(++failures));
    };
  };
  run->source.end = DataEnd::epoch;
  fails_once();
  EXPECT_FALSE(step().failure);
  EXPECT_EQ(failures, 1);
  EXPECT_EQ(run->checkpointer.figures().failed, 0);
  run->source.end = DataEnd::none;
  EXPECT_FALSE(step().failure);
  fails_once();
  { const Checkpointer::EvaluationScope scope(run->checkpointer); }
  EXPECT_EQ(run->checkpointer.figures().failed, 1);
  EXPECT_THAT(step().failure.value_or(""), HasSubstr("staging step 12 failed: planted 2"));
}

// A system call that fails is no reason to give the run up, nor to try at each step.
TEST_F(Warnings, AFileThatCannotBeLaidOutIsAFailedSaveAtOnce) {
  options.every = {SaveEvery::steps(3)};
  start();
  run->source.on_describe = [] { throw IoError("create", "/dev/shm/plan", EMFILE); };
  EXPECT_THAT(step().failure.value_or(""), HasSubstr("EMFILE"));
  EXPECT_TRUE(step().failure);
  EXPECT_EQ(run->checkpointer.figures().failed, 1);
  EXPECT_EQ(step().save.status(), SaveStatus::failed);
  EXPECT_THAT(run->decision.save.error(), HasSubstr("staging step 3 failed: "));
  step();
  EXPECT_EQ(run->checkpointer.figures().failed, 2) << "not again at every step";
  run->source.on_describe = {};
  step();
  EXPECT_TRUE(step().saved);
  EXPECT_EQ(durable(), 6);
  EXPECT_FALSE(step().failure);
}

// The source repeats its notice before the training has looked at the clock.
TEST_F(Warnings, ANoticeThatIsRepeatedAfterTheSleepDoesNotHideIt) {
  commit = {};
  start_measured();
  const SteadyTime end = now() + 60s;
  announcer.deadline(end, true);
  step();
  volume.clock.sleep_machine(10min);
  announcer.deadline(end + 1s, true);
  step();
  EXPECT_EQ(times_said(log.text(), "the machine has slept and is awake again"), 1U);
}

// −2: there is no mirror.
class HomeWarnings : public Warnings, public testing::WithParamInterface<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(, HomeWarnings, testing::Values(8, -1, -2));

TEST_P(HomeWarnings, AStepThatCannotBeHomeInTimeIsToldOnceForEachNotice) {
  const std::int64_t home = GetParam();
  options.notices.on_notice = OnNotice::wait;
  home > -2 ? start_mirrored() : static_cast<void>(start_measured());
  if (home > -2) mirror_said(home);
  for (int notices = 0; notices < 2; ++notices) {
    announcer.deadline(now() + 50s);
    step();
    step();
  }
  EXPECT_EQ(durable(), 13) << "durable here is better than nothing";
  const std::string said = log.text();
  const std::string warning = "will not be home in time: the way takes about 1m 00s, 48s left; ";
  const std::string newest = home >= 0 ? "step 8 is the newest that is home" : "nothing of this run is home";
  EXPECT_EQ(times_said(said, "will not be home"), home > -2 ? 2U : 0U);
  EXPECT_EQ(times_said(said, warning + newest), home > -2 ? 2U : 0U);
  EXPECT_EQ(
      times_said(said, "the machine lives 1m 00s after its end was due (the end is near): the run goes on"),
      2U);
}

// A grace that nobody has named forbids no save, and the way home has to share it.
TEST_F(Warnings, AGuessedGraceIsSharedWithTheWayHome) {
  start_mirrored();
  mirror_said(8);
  announcer.tell({.kind = NoticeKind::stop, .deadline = now() + 25s, .text = "SIGTERM", .guessed = true});
  EXPECT_TRUE(step().stop);
  EXPECT_EQ(run->checkpointer.finish(), 75);
  EXPECT_EQ(durable(), 11);
  const std::string said = log.text();
  EXPECT_EQ(times_said(said, "step 11 will not be home in time"), 1U) << said;
}

TEST_F(Warnings, LedgersThatCannotBeReadStopNothing) {
  options.every = {SaveEvery::automatic()};
  {
    Attempt first(options);
    first.train_to(2);
    EXPECT_EQ(first.checkpointer.finish(), 0);
  }
  volume.faults.set_hook([](const Operation& operation) {
    const bool ledger = operation.path.find("ledger-a0001") != std::string::npos;
    if (ledger && operation.kind == Op::open_read) throw IoError("open", operation.path, EIO);
  });
  start();
  EXPECT_EQ(run->resumed.step, 2);
  run->step();
  EXPECT_EQ(run->checkpointer.finish(), 0);
  EXPECT_EQ(times_said(log.text(), "the save interval is chosen without earlier attempts: "), 1U);
}

class ContainerGrace : public Together {
 protected:
  ContainerGrace() {
    setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1", 1);
    options.notices.hear_signals = true;
  }
  ~ContainerGrace() override { unsetenv("KUBERNETES_SERVICE_HOST"); }
};

TEST_F(ContainerGrace, OneRankSaysWhichIsGuessed) {
  for (const bool guessed : {true, false}) {
    CapturedLog log;
    start_over();
    options.notices.hear_signals = true;
    if (!guessed) options.notices.term_grace = 40s;
    live(2, [](Member& one) {
      one.step();
      one.finish();
    });
    expect_all_ended(0);
    EXPECT_EQ(times_said(log.text(), "10 s from SIGTERM to SIGKILL are assumed; HOLDFAST_TERM_GRACE sets"),
              guessed ? 1U : 0U);
  }
}

TEST_F(ContainerGrace, OneRankSaysThatTorchrunGivesLessThanWasNamed) {
  setenv("TORCHELASTIC_RUN_ID", "none", 1);
  CapturedLog log;
  start_over();
  options.notices.hear_signals = true;
  options.notices.term_grace = 40s;
  live(2, [](Member& one) {
    one.step();
    one.finish();
  });
  unsetenv("TORCHELASTIC_RUN_ID");
  expect_all_ended(0);
  EXPECT_EQ(times_said(log.text(), "torchrun kills 30 s after SIGTERM: 25 s are assumed"), 1U);
}

}}  // namespace holdfast::test
