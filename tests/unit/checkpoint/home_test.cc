// A run with a second, safer place: where it starts, what it tells, and what it waits for.
#include "holdfast/mirror/home.h"

#include <cstdlib>

#include "holdfast/mirror/mirror.h"
#include "holdfast/mirror/start.h"
#include "holdfast/writing/file_verifier.h"
#include "rig.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr char kHomePlace[] = "/efs/run";

// A machine with a volume of its own. HOME lies on the first one's file system, beside it.
class Homes : public testing::Test {
 protected:
  CheckpointerOptions options(const char* directory = kRun) {
    CheckpointerOptions options = volume.options();
    options.mount.clear();
    options.directory = directory;
    options.start.home = kHomePlace;
    options.start.home_wait = 60s;
    return options;
  }
  // What a `holdfast mirror` beside the trainer does until all is home.
  void bring_home(const char* directory = kRun) {
    FileVerifier verifier;
    verifier.stop_keeping();
    holdfast::Pace pace(volume.clock);
    const auto home = open_home({.place = kHomePlace}, volume.disk, verifier, pace);
    Mirror(volume.disk, verifier, *home, {.directory = directory, .once = true}, pace).run();
  }
  std::string home_file(AttemptNumber attempt, std::int64_t step) const {
    return std::string(kHomePlace) + "/" + checkpoint_name({.attempt = attempt, .step = step});
  }
  CapturedLog log;
  Volume volume;
};

TEST_F(Homes, AnEmptyDiskGoesOnWithTheSameBits) {
  {
    Attempt first(options());
    EXPECT_TRUE(first.resumed.fresh);
    first.train_to(10);
    EXPECT_EQ(first.checkpointer.finish(), 0);
  }
  bring_home();
  Attempt second(options("/vol/other"));
  EXPECT_EQ(second.resumed.step, 10);
  EXPECT_TRUE(second.resumed.bit_exact);
  EXPECT_GT(second.checkpointer.attempt(), 1U);
  second.train_to(20);
  EXPECT_EQ(second.state(), state_after(20));
}

TEST_F(Homes, AnOlderOneIsTakenIfTheNewestIsDamaged) {
  {
    Attempt first(options());
    first.train_to(5);
    first.checkpointer.save().wait();
    first.train_to(10);
    EXPECT_EQ(first.checkpointer.finish(), 0);
  }
  bring_home();
  volume.disk.flip_bit(home_file(1, 10), 20000);
  Attempt second(options("/vol/other"));
  EXPECT_EQ(second.resumed.step, 5);
}

TEST_F(Homes, TheFiguresTellWhatIsHome) {
  Attempt run(options());
  ASSERT_TRUE(run.checkpointer.figures().home) << "a start with a home leaves its record";
  EXPECT_EQ(run.checkpointer.figures().home->step, -1);
  volume.clock.advance(2s);
  run.step();
  const SaveHandle save = run.checkpointer.save();
  EXPECT_EQ(save.wait(), SaveStatus::durable);
  EXPECT_EQ(save.wait_home(1ms), HomeStatus::away);
  volume.clock.advance(3s);
  run.step();
  const HomeFigures away = *run.checkpointer.figures().home;
  EXPECT_EQ(away.risk_steps, 2);
  EXPECT_EQ(away.risk_time, 5s);
  EXPECT_EQ(run.checkpointer.figures().risk_steps, 1) << "durable here";

  bring_home();
  EXPECT_EQ(save.wait_home(std::chrono::nanoseconds::max()), HomeStatus::home);
  const HomeFigures home = *run.checkpointer.figures().home;
  EXPECT_EQ(home.step, 1);
  EXPECT_EQ(home.risk_steps, 1);
  EXPECT_EQ(home.risk_time, 3s) << "since training stood at that step";
  EXPECT_GT(home.took, Duration::zero());
  EXPECT_FALSE(home.failing);
  EXPECT_EQ(run.checkpointer.finish(), 0);
  EXPECT_EQ(read_run_state(*volume.disk.open_directory(kRun, false))->home_step, 1);
  const std::vector<std::byte> ledger = volume.disk.get(volume.path("ledger-a0001.jsonl"));
  const std::string text(reinterpret_cast<const char*>(ledger.data()), ledger.size());
  EXPECT_THAT(text, HasSubstr(R"("event":"home")"));
}

TEST_F(Homes, ASaveThatIsOvertakenIsHomeWithTheNewerOne) {
  Attempt run(options());
  run.step();
  const SaveHandle first = run.checkpointer.save();
  first.wait();
  run.step();
  const SaveHandle second = run.checkpointer.save();
  second.wait();
  run.step();
  const SaveHandle third = run.checkpointer.save();
  third.wait();
  bring_home();
  EXPECT_FALSE(volume.disk.exists(home_file(1, 1)));
  EXPECT_EQ(first.wait_home(60s), HomeStatus::home);
  EXPECT_EQ(third.wait_home(60s), HomeStatus::home);
}

TEST_F(Homes, WithoutAMirrorNobodyWaits) {
  SaveHandle save;
  {
    Attempt run(volume.options());
    run.step();
    save = run.checkpointer.save();
    EXPECT_EQ(save.wait_home(1h), HomeStatus::no_mirror);
    EXPECT_FALSE(run.checkpointer.figures().home);
  }
  EXPECT_EQ(save.wait_home(1h), HomeStatus::no_mirror);
  EXPECT_EQ(SaveHandle().wait_home(1h), HomeStatus::away);
}

TEST_F(Homes, AfterTheCheckpointerNobodyWaits) {
  SaveHandle save;
  {
    Attempt run(options());
    run.step();
    save = run.checkpointer.save();
    save.wait();
  }
  EXPECT_EQ(save.wait_home(1h), HomeStatus::away);
}

TEST_F(Homes, AHomeThatIsAwayIsWaitedForAndThenDoneWithout) {
  {
    Attempt first(options());
    first.train_to(10);
    EXPECT_EQ(first.checkpointer.finish(), 0);
  }
  volume.faults.set_hook([](const Operation& operation) {
    if (operation.path.starts_with("/efs")) throw IoError("open", operation.path, EIO);
  });
  const SteadyTime began = volume.clock.now();
  Attempt second(options());
  EXPECT_EQ(second.resumed.step, 10);
  EXPECT_GE(volume.clock.now() - began, 60s);
  EXPECT_THAT(log.text(), HasSubstr("goes on alone from step 10"));
  EXPECT_THROW(Attempt(options("/vol/empty")), Error);
}

TEST_F(Homes, UnderASupervisorWithAMirrorTheStartIsPrepared) {
  for (const std::string slashes : {"", "/"}) {
    setenv("HOLDFAST_MIRROR_HOME", (kHomePlace + slashes).c_str(), 1);
    Attempt run(options());
    EXPECT_TRUE(run.resumed.fresh);
    EXPECT_FALSE(volume.disk.exists(kHomePlace)) << "its number is claimed already";
  }
  unsetenv("HOLDFAST_MIRROR_HOME");
}

// A wrapped script starts a second training, with a run directory and a HOME of its own.
TEST_F(Homes, ARunThatTheSupervisorDidNotPrepareUsesItsOwnHome) {
  {
    Attempt first(options());
    first.train_to(10);
    EXPECT_EQ(first.checkpointer.finish(), 0);
  }
  bring_home();
  setenv("HOLDFAST_MIRROR_HOME", "/efs/another", 1);
  {
    Attempt second(options("/vol/other"));
    EXPECT_EQ(second.resumed.step, 10) << "its disk is empty, and HOME holds its checkpoints";
  }
  unsetenv("HOLDFAST_MIRROR_HOME");
  EXPECT_THAT(log.text(), HasSubstr("home /efs/run: `holdfast supervise --mirror /efs/another` has prepared "
                                    "another run"));
}

// The supervisor's place and the trainer's are one, in other words.
TEST_F(Homes, TheRunDirectorySaysWhichHomePreparedIt) {
  FileVerifier verifier;
  holdfast::Pace pace(volume.clock);
  const auto home = open_home({.place = "/efs/../efs/run"}, volume.disk, verifier, pace);
  prepare_start_or_go_alone(volume.disk, verifier, kRun, *home, pace, 60s);
  setenv("HOLDFAST_MIRROR_HOME", "/efs/../efs/run/", 1);
  {
    const Attempt run(options());
    EXPECT_EQ(run.checkpointer.attempt(), 1U) << "its number is claimed already";
  }
  unsetenv("HOLDFAST_MIRROR_HOME");
}

TEST_F(Homes, ImpossiblePlacesAreRefused) {
  MemorySource source;
  for (const char* const place : {"rclone:", "rclone:s3", kRun}) {
    CheckpointerOptions wrong = options();
    wrong.start.home = place;
    EXPECT_THROW(Checkpointer(source, wrong), UsageError) << place;
  }
}

}}  // namespace holdfast::test
