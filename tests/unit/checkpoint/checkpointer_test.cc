// The normal life of a run: fresh start, saves, the end, the next attempt.
#include "holdfast/checkpoint/checkpointer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <thread>

#include "holdfast/staging/run_record.h"
#include "holdfast/writing/file_verifier.h"
#include "rig.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

RunState state_of_run(const Volume& volume) {
  auto disk = volume.disk.copy();
  return read_run_state(*disk.open_directory(kRun, false)).value();
}

RunRecord record_in(Volume& volume, const std::string& name) {
  const auto file = volume.disk.open_file(volume.path(name), OpenMode::read);
  return run_record_of(std::get<CheckpointIndex>(read_index(*file)).attributes);
}

TEST(Checkpointer, FreshStartSavesAndCompletes) {
  Volume volume;
  CapturedLog log;
  Attempt run(volume.options({SaveEvery::steps(10)}));
  EXPECT_TRUE(run.resumed.fresh);
  EXPECT_EQ(run.checkpointer.directory(), kRun);
  EXPECT_EQ(run.resumed.step, 0);
  EXPECT_EQ(run.checkpointer.attempt(), 1u);
  EXPECT_EQ(run.checkpointer.last_durable().step, -1);
  EXPECT_EQ(state_of_run(volume).phase, RunPhase::running);
  run.train_to(25);
  EXPECT_EQ(run.checkpointer.finish(), 0);
  EXPECT_EQ(run.checkpointer.finish(), 0);
  EXPECT_EQ(run.checkpointer.last_durable().step, 25);
  EXPECT_EQ(run.checkpointer.last_durable().checkpoint, "step-000000000025-a0001.h5");
  EXPECT_EQ(volume.checkpoints(),
            (std::vector<std::string>{"step-000000000010-a0001.h5", "step-000000000020-a0001.h5",
                                      "step-000000000025-a0001.h5"}));
  EXPECT_EQ(state_of_run(volume).phase, RunPhase::complete);
  EXPECT_EQ(state_of_run(volume).durable_step, 25);
  EXPECT_THAT(log.text(), HasSubstr("fresh start in /vol/run"));
}

TEST(Checkpointer, ResumesBitForBit) {
  const std::string straight = state_after(40);
  Volume volume;
  {
    Attempt first(volume.options({SaveEvery::steps(7)}));
    first.train_to(23);  // ends without finish(), like a crash
  }
  CapturedLog log;
  Attempt second(volume.options({SaveEvery::steps(7)}));
  EXPECT_FALSE(second.resumed.fresh);
  EXPECT_EQ(second.resumed.step, 21);
  EXPECT_EQ(second.resumed.checkpoint, "step-000000000021-a0001.h5");
  EXPECT_FALSE(std::isnan(second.resumed.loss));
  EXPECT_EQ(second.checkpointer.last_durable().step, 21);
  second.train_to(40);
  EXPECT_EQ(second.state(), straight);
  EXPECT_EQ(second.checkpointer.finish(), 0);
  EXPECT_EQ(second.state(), straight);
  EXPECT_THAT(log.text(), HasSubstr("resuming from step 21 (step-000000000021-a0001.h5, "));

  Attempt third(volume.options());
  EXPECT_EQ(third.resumed.step, 40);
  EXPECT_EQ(third.state(), straight);
  // Nothing new: nothing is written again.
  const auto before = volume.checkpoints();
  EXPECT_EQ(third.checkpointer.finish(), 0);
  EXPECT_EQ(volume.checkpoints(), before);
  EXPECT_EQ(third.checkpointer.last_durable().checkpoint, "step-000000000040-a0002.h5");
}

TEST(Checkpointer, AncestryGrowsOverGenerations) {
  Volume volume;
  for (int generation = 1; generation <= 4; ++generation) {
    Attempt run(volume.options());
    EXPECT_EQ(run.checkpointer.attempt(), static_cast<AttemptNumber>(generation));
    run.train_to(10 * generation);
    run.checkpointer.request_stop("test");
    run.step();
    EXPECT_EQ(run.checkpointer.finish(), 75);
  }
  const RunRecord record = record_in(volume, "step-000000000041-a0004.h5");
  EXPECT_EQ(record.attempt, 4u);
  EXPECT_EQ(record.ancestry, (Ancestry{{1, 11}, {2, 21}, {3, 31}}));
  EXPECT_EQ(record.grown_from, "step-000000000031-a0003.h5");
}

TEST(Checkpointer, SavesByTime) {
  Volume volume;
  Attempt run(volume.options({SaveEvery(5min)}));
  EXPECT_FALSE(run.step().saved);
  volume.clock.advance(20s);
  EXPECT_TRUE(run.step().saved) << "the first comes early";
  run.decision.save.wait();  // the only image is free again
  volume.clock.advance(299s);
  EXPECT_FALSE(run.step().saved);
  volume.clock.advance(1s);
  EXPECT_TRUE(run.step().saved);
  EXPECT_FALSE(run.step().saved);
}

TEST(Checkpointer, SavesWhenAsked) {
  Volume volume;
  Attempt run(volume.options());
  run.step();
  const SaveHandle handle = run.checkpointer.save();
  EXPECT_EQ(handle.step(), 1);
  EXPECT_EQ(handle.wait(), SaveStatus::durable);
  EXPECT_EQ(run.checkpointer.save().checkpoint(), handle.checkpoint());  // the same boundary
  std::thread([&] { run.checkpointer.request_save(); }).join();
  const Decision decision = run.step();
  EXPECT_TRUE(decision.saved);
  EXPECT_FALSE(decision.stop);
  EXPECT_FALSE(run.step().saved);
}

TEST(Checkpointer, AStepWithNothingToDoCopiesAndWritesNothing) {
  Volume volume;
  Attempt run(volume.options({SaveEvery(5min), SaveEvery::steps(1000)}));
  run.train_to(2);
  volume.faults.clear_log();
  const std::int64_t copies = run.source.copies;
  for (int i = 0; i < 100; ++i) {
    const Decision decision = run.step();
    EXPECT_FALSE(decision.saved || decision.stop || decision.failure);
  }
  EXPECT_EQ(run.source.copies, copies);
}

// One image: while it is being written, a save by policy waits for a later step instead of blocking this one.
TEST(Checkpointer, NeverBlocksOnTheDisk) {
  Volume volume;
  Gate gate;
  volume.faults.set_hook([&](const Operation& operation) {
    if (operation.kind == Op::sync_file && operation.path.find("step-") != std::string::npos) gate.pass();
  });
  Attempt run(volume.options({SaveEvery::steps(2)}));
  run.step();
  EXPECT_TRUE(run.step().saved);
  gate.await_arrival();
  for (int i = 0; i < 6; ++i) EXPECT_FALSE(run.step().saved);
  gate.open();
  while (run.checkpointer.last_durable().step != 2) std::this_thread::sleep_for(1ms);
  while (!run.step().saved) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(run.checkpointer.finish(), 0);
}

TEST(Checkpointer, ASecondImageTakesTheNextSaveMeanwhile) {
  Volume volume;
  Gate gate;
  volume.faults.set_hook([&](const Operation& operation) {
    if (operation.kind == Op::sync_file && operation.path.find("step-") != std::string::npos) gate.pass();
  });
  CheckpointerOptions options = volume.options({SaveEvery::steps(2)});
  options.writing.second_image = true;
  Attempt run(options);
  run.step();
  EXPECT_TRUE(run.step().saved);
  gate.await_arrival();
  run.step();
  EXPECT_TRUE(run.step().saved);
  run.step();
  EXPECT_FALSE(run.step().saved);
  gate.open();
  while (run.checkpointer.last_durable().step != 4) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(run.checkpointer.finish(), 0);
}

TEST(Checkpointer, AStopCommitsThisStep) {
  Volume volume;
  Attempt run(volume.options());
  run.train_to(3);
  EXPECT_FALSE(run.checkpointer.tick());
  EXPECT_EQ(run.checkpointer.stop_reason(), "");
  std::thread([&] { run.checkpointer.request_stop("maintenance"); }).join();
  EXPECT_TRUE(run.checkpointer.tick());
  const Decision decision = run.step();
  EXPECT_TRUE(decision.stop);
  EXPECT_TRUE(decision.saved);
  EXPECT_EQ(decision.reason, "maintenance");
  const std::string state = run.state();
  EXPECT_EQ(run.checkpointer.finish(), 75);
  EXPECT_EQ(run.checkpointer.stop_reason(), "maintenance");
  EXPECT_EQ(run.checkpointer.last_durable().step, 4);
  EXPECT_EQ(run.state(), state);
  EXPECT_EQ(state_of_run(volume).phase, RunPhase::interrupted);
  EXPECT_EQ(state_of_run(volume).reason, "maintenance");
  EXPECT_EQ(state_of_run(volume).exit_code, 75);

  Attempt next(volume.options());
  EXPECT_EQ(next.resumed.step, 4);
  EXPECT_EQ(next.state(), state);
}

TEST(Checkpointer, AStopBeforeTheFirstStepWritesNoCheckpoint) {
  Volume volume;
  Attempt run(volume.options());
  run.checkpointer.request_stop("early");
  EXPECT_TRUE(run.checkpointer.tick());
  EXPECT_EQ(run.checkpointer.finish(), 75);
  EXPECT_TRUE(volume.checkpoints().empty());
  EXPECT_EQ(run.checkpointer.last_durable().step, -1);
  EXPECT_TRUE(Attempt(volume.options()).resumed.fresh);
}

TEST(Checkpointer, LaunchersCanHaveAnotherExitCode) {
  Volume volume;
  CheckpointerOptions options = volume.options();
  options.notices.exit_code_interrupted = 17;
  Attempt run(options);
  run.checkpointer.request_stop("x");
  EXPECT_EQ(run.checkpointer.finish(), 17);
}

TEST(Checkpointer, KeepsWhatRetentionSays) {
  Volume volume;
  CheckpointerOptions options = volume.options({SaveEvery::steps(1)});
  options.keep = KeepLast{2};
  Attempt run(options);
  for (int i = 0; i < 8; ++i) {
    run.step();
    run.checkpointer.save().wait();
  }
  EXPECT_EQ(run.checkpointer.finish(), 0);
  EXPECT_EQ(volume.checkpoints(),
            (std::vector<std::string>{"step-000000000007-a0001.h5", "step-000000000008-a0001.h5"}));
}

TEST(Checkpointer, AttributesMayOutgrowTheirRoom) {
  Volume volume;
  {
    Attempt run(volume.options({SaveEvery::steps(1)}));
    run.step();
    run.checkpointer.save().wait();
    run.source.extra["vocabulary"] = std::string(300'000, 'x');
    run.step();
    EXPECT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
    EXPECT_EQ(run.checkpointer.finish(), 0);
  }
  Attempt next(volume.options());
  EXPECT_EQ(next.resumed.step, 2);
  EXPECT_EQ(next.source.extra["vocabulary"].size(), 300'000u);
  next.step();
  EXPECT_EQ(next.checkpointer.finish(), 0);
}

TEST(Checkpointer, TheRealDiskWorksToo) {
  const std::string straight = state_after(9);
  const TemporaryFolder folder;
  CheckpointerOptions options;
  options.directory = folder.path() / "run";
  options.every = {SaveEvery::steps(3)};
  options.notices.hear_signals = false;
  CapturedLog log;
  {
    Attempt first(options);
    first.train_to(5);
  }
  Attempt second(options);
  EXPECT_EQ(second.resumed.step, 3);
  second.train_to(9);
  EXPECT_EQ(second.checkpointer.finish(), 0);
  EXPECT_EQ(second.state(), straight);
}

TEST(Checkpointer, SignalsStopIt) {
  Volume volume;
  CheckpointerOptions options = volume.options();
  options.notices.hear_signals = true;
  options.start.seams.clock = nullptr;
  CapturedLog log;
  Attempt run(options);
  run.step();
  std::raise(SIGUSR1);
  while (!run.step().saved) std::this_thread::sleep_for(1ms);
  EXPECT_FALSE(run.decision.stop);
  std::raise(SIGTERM);
  while (!run.checkpointer.tick()) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(run.step().stop);
  EXPECT_THAT(run.decision.reason, HasSubstr("SIGTERM"));
  EXPECT_EQ(run.checkpointer.finish(), 75);
}

TEST(Checkpointer, MisuseIsNamed) {
  Volume volume;
  MemorySource source;
  Checkpointer checkpointer(source, volume.options());
  EXPECT_THROW(checkpointer.after_step(), UsageError);
  EXPECT_THROW(checkpointer.save(), UsageError);
  EXPECT_THROW(checkpointer.finish(), UsageError);
  EXPECT_FALSE(checkpointer.tick());
  checkpointer.resume();
  EXPECT_THROW(checkpointer.resume(), UsageError);
  checkpointer.finish();
  EXPECT_THROW(checkpointer.after_step(), UsageError);

  MemorySource trained;
  trained.advance(trained.train());
  Volume other;
  Checkpointer late(trained, other.options());
  EXPECT_THROW(late.resume(), UsageError);
}

TEST(Checkpointer, OptionsAreChecked) {
  Volume volume;
  MemorySource source;
  const auto refuses = [&](auto change) {
    CheckpointerOptions options = volume.options();
    change(options);
    EXPECT_THROW(Checkpointer(source, options), UsageError);
  };
  refuses([](auto& o) { o.directory.clear(); });
  refuses([](auto& o) { o.keep = KeepLast{1}; });
  refuses([](auto& o) { o.every = {SaveEvery::steps(0)}; });
  refuses([](auto& o) { o.every = {SaveEvery(-5s)}; });
  refuses([](auto& o) { o.mount = "/mnt"; });
  refuses([](auto& o) { o.start.mount_wait = -1s; });
  refuses([](auto& o) { o.writing.threads = 0; });
  refuses([](auto& o) { o.notices.term_grace = 0s; });
  refuses([](auto& o) { o.notices.exit_code_interrupted = 256; });
  refuses([](auto& o) {
    o.start.resume_from = "3";
    o.start.init_from = "/x.h5";
  });
}

}}  // namespace holdfast::test
