// A state on devices that copy by themselves: what is committed is the step boundary, whatever the training
// gives its device next, and the training thread waits for no copy.
#include <atomic>
#include <thread>

#include "rig.h"
#include "support/device_source.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;
using testing::Not;

// An attempt of a run on a device.
struct DeviceRun {
  explicit DeviceRun(const CheckpointerOptions& options, DeviceSource::Options state = {})
      : source(state), checkpointer(source, options), resumed(checkpointer.resume()) {}
  Decision step() {
    source.forward();
    source.update();
    return checkpointer.after_step();
  }
  Decision announced_step() {
    source.forward();
    checkpointer.before_update();
    source.update();
    return checkpointer.after_step();
  }
  void await_durable(std::int64_t step) {
    while (checkpointer.last_durable().step < step) std::this_thread::yield();
  }

  DeviceSource source;
  Checkpointer checkpointer;
  Resumed resumed;
};

// What a new attempt on this volume begins with is what so many steps leave.
void expect_resumed(Volume& volume, std::int64_t step, DeviceSource::Options state = {}) {
  DeviceRun next(volume.options(), state);
  EXPECT_EQ(next.resumed.step, step);
  EXPECT_TRUE(next.source.holds_step(step)) << step;
}

TEST(DeviceStaging, TheTrainingGoesOnWhileTheDeviceCopies) {
  for (const bool announced : {true, false}) {
    Volume volume;
    FakeEvent open;
    {
      DeviceRun run(volume.options({SaveEvery::steps(2)}));
      run.source.device().before_fetch = [&open] { open.wait(); };
      const auto step = [&] { return announced ? run.announced_step() : run.step(); };
      step();
      EXPECT_TRUE(step().saved);
      for (int i = 0; i < 2; ++i) step();  // although nothing has arrived yet
      EXPECT_EQ(run.checkpointer.last_durable().step, -1);
      EXPECT_EQ(volume.checkpoints().size(), 0u) << "nothing is committed before it is there";
      open.set();
      run.await_durable(2);
      EXPECT_EQ(run.source.device().at_once, 0);
      EXPECT_EQ(run.source.device().holds, 0);
    }
    expect_resumed(volume, 2);
  }
}

TEST(DeviceStaging, NothingWaitsForTheNextUpdateWhereItWasSetAside) {
  Volume volume;
  {
    DeviceRun run(volume.options({SaveEvery::steps(2)}));
    run.announced_step();
    EXPECT_TRUE(run.announced_step().saved);
    run.await_durable(2);  // before_update() has not been called
  }
  expect_resumed(volume, 2);
}

TEST(DeviceStaging, WithoutRoomTheUpdateWaitsOnTheDevice) {
  Volume volume;
  FakeEvent open;
  {
    DeviceRun run(volume.options({SaveEvery::steps(2)}), {.elements = 100000});
    run.source.device().room = 8192;
    // The first saves are compared with live memory, and wait.
    for (int i = 0; i < 6; ++i) {
      run.announced_step();
      if (i % 2 == 1) {
        run.checkpointer.before_update();
        run.await_durable(i + 1);
      }
    }
    run.source.device().before_fetch = [&open] { open.wait(); };
    run.announced_step();
    EXPECT_TRUE(run.announced_step().saved);
    const int holds = run.source.device().holds;
    for (int i = 0; i < 2; ++i) run.announced_step();
    EXPECT_EQ(run.source.device().holds, holds + 1);
    EXPECT_EQ(run.checkpointer.last_durable().step, 6);
    open.set();
    run.await_durable(8);
    EXPECT_EQ(run.source.device().at_once, 0);
  }
  expect_resumed(volume, 8, {.elements = 100000});
}

TEST(DeviceStaging, WithoutRoomAnUnannouncedLoopGetsItAtOnce) {
  Volume volume;
  {
    DeviceRun run(volume.options({SaveEvery::steps(2)}));
    run.source.device().room = 16;
    run.step();
    run.step();
    EXPECT_EQ(run.source.device().at_once, 1);
    run.step();
    run.await_durable(2);
  }
  expect_resumed(volume, 2);
}

TEST(DeviceStaging, AnUpdateThatComesUnannouncedDropsAGatedSave) {
  Volume volume;
  CapturedLog log;
  {
    DeviceRun run(volume.options({SaveEvery::steps(2)}));
    run.source.device().room = 4096;
    run.announced_step();
    EXPECT_TRUE(run.announced_step().saved);
    EXPECT_TRUE(run.step().saved);
    run.await_durable(3);
    EXPECT_EQ(run.checkpointer.finish(), 0);
  }
  EXPECT_THAT(log.text(), HasSubstr("before_update() was not called before the update of step 3"));
  for (const std::string& name : volume.checkpoints()) EXPECT_THAT(name, Not(HasSubstr("02-a"))) << name;
  expect_resumed(volume, 3);
}

TEST(DeviceStaging, AnUpdateThatComesUnannouncedDoesNotHarmWhatWasSetAside) {
  Volume volume;
  {
    DeviceRun run(volume.options({SaveEvery::steps(2)}));
    run.announced_step();
    EXPECT_TRUE(run.announced_step().saved);
    run.step();
    run.await_durable(2);
  }
  expect_resumed(volume, 2);
}

TEST(DeviceStaging, ACopyThatFailsIsAFailedSaveAndTheTrainingGoesOn) {
  for (const bool room : {true, false}) {
    Volume volume;
    CapturedLog log;
    {
      DeviceRun run(volume.options({SaveEvery::steps(3)}));
      if (!room) run.source.device().room = 4096;
      for (int i = 0; i < 2; ++i) run.announced_step();
      run.source.device().fail_fetch = 0;
      const Decision failing = run.announced_step();
      run.checkpointer.before_update();
      EXPECT_EQ(failing.save.wait(), SaveStatus::failed);
      EXPECT_THAT(run.announced_step().failure.value_or(""), HasSubstr("a copy failed"));
      run.announced_step();
      const Decision next = run.announced_step();
      EXPECT_TRUE(next.saved);
      run.checkpointer.before_update();
      EXPECT_EQ(next.save.wait(), SaveStatus::durable);
      EXPECT_FALSE(run.announced_step().failure);
      EXPECT_EQ(run.checkpointer.finish(), 0);
    }
    EXPECT_THAT(log.text(), HasSubstr("training goes on"));
    EXPECT_THAT(volume.checkpoints(), Not(testing::Contains(HasSubstr("003-a"))));
  }
}

TEST(DeviceStaging, TheEndWaitsForWhatIsOnItsWay) {
  for (const bool stopped : {false, true}) {
    Volume volume;
    {
      DeviceRun run(volume.options({SaveEvery::steps(2)}));
      run.source.device().before_fetch = [] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); };
      run.announced_step();
      run.announced_step();
      if (stopped) run.checkpointer.request_stop("test");
      EXPECT_EQ(run.checkpointer.finish(), stopped ? 75 : 0);
      EXPECT_EQ(run.checkpointer.last_durable().step, 2);
    }
    expect_resumed(volume, 2);
  }
}

TEST(DeviceStaging, AnAbandonedRunWaitsForWhatIsOnItsWay) {
  for (const bool room : {true, false}) {
    Volume volume;
    DeviceRun run(volume.options({SaveEvery::steps(2)}));
    if (!room) run.source.device().room = 4096;
    run.source.device().before_fetch = [] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); };
    run.announced_step();
    run.announced_step();
  }
}

TEST(DeviceStaging, AnEvaluationMaySwapWeights) {
  for (const bool room : {true, false}) {
    Volume volume;
    {
      DeviceRun run(volume.options({SaveEvery::steps(2)}));
      if (!room) run.source.device().room = 4096;
      run.source.device().before_fetch = [] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); };
      run.announced_step();
      EXPECT_TRUE(run.announced_step().saved);
      {
        const Checkpointer::EvaluationScope scope(run.checkpointer);
        run.source.disturb(3);
        run.source.disturb_back(3);
      }
      run.checkpointer.before_update();
      run.await_durable(2);
    }
    expect_resumed(volume, 2);
  }
}

TEST(DeviceStaging, AStopInsideAnEvaluationCommitsTheBoundary) {
  Volume volume;
  {
    DeviceRun run(volume.options({SaveEvery::steps(2)}));
    run.announced_step();
    run.announced_step();
    {
      const Checkpointer::EvaluationScope scope(run.checkpointer);
      run.source.disturb(3);
      run.checkpointer.request_stop("test");
      EXPECT_TRUE(run.checkpointer.tick());
    }
    EXPECT_EQ(run.checkpointer.finish(), 75);
  }
  expect_resumed(volume, 2);
}

TEST(DeviceStaging, WhatChangesTooEarlyIsNamedAndSetAsideFromThenOn) {
  Volume volume;
  CapturedLog log;
  {
    DeviceRun run(volume.options({SaveEvery::steps(2)}));
    run.source.device().room = 4096;
    run.announced_step();
    EXPECT_TRUE(run.announced_step().saved);
    run.source.device().copying.drain();
    run.source.disturb(3);
    run.checkpointer.before_update();
    run.source.disturb_back(3);
    run.source.device().training.drain();
    run.source.device().room = 1 << 20;
    run.announced_step();
    run.await_durable(3);
  }
  EXPECT_THAT(log.text(), HasSubstr("model/weight changed between after_step and before_update"));
  expect_resumed(volume, 3);
}

TEST(DeviceStaging, ImagesArePageLockedOnceAndFreedBeforeTheirMemory) {
  Volume volume;
  std::shared_ptr<DeviceSource::Locked> locked;
  {
    DeviceRun run(volume.options({SaveEvery::steps(1)}));
    locked = run.source.locked();
    run.announced_step();
    const int at_first = locked->ever;
    EXPECT_GE(at_first, 1) << "before the first save";
    for (int i = 0; i < 5; ++i) {
      const Decision decision = run.announced_step();
      if (decision.saved) {
        EXPECT_EQ(decision.save.wait(), SaveStatus::durable);
      }
    }
    EXPECT_EQ(locked->ever, at_first);
    EXPECT_EQ(run.checkpointer.finish(), 0);
  }
  EXPECT_TRUE(locked->images.empty());
}

TEST(DeviceStaging, AnImageIsUsedAgainOnlyWhenAllOfItHasArrived) {
  Volume volume;
  FakeEvent open;
  DeviceRun run(volume.options({SaveEvery::steps(1)}));
  run.source.device().before_fetch = [&open] { open.wait(); };
  EXPECT_TRUE(run.announced_step().saved);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(run.announced_step().saved) << i;
  open.set();
  run.await_durable(1);
  EXPECT_TRUE(run.announced_step().saved);
}

TEST(DeviceStaging, TwoDevicesAndAnOptimizerInHostMemory) {
  for (const auto& state :
       {DeviceSource::Options{.two_devices = true}, DeviceSource::Options{.host_momentum = true},
        DeviceSource::Options{.lock_images = false}}) {
    for (const bool announced : {true, false}) {
      for (const bool room : {true, false}) {
        Volume volume;
        {
          DeviceRun run(volume.options({SaveEvery::steps(2)}), state);
          if (!room) run.source.device().room = 4096;
          for (int i = 0; i < 7; ++i) announced ? run.announced_step() : run.step();
          EXPECT_EQ(run.checkpointer.finish(), 0);
          EXPECT_GT(run.source.late_copies + run.source.independent_copies, 0);
        }
        DeviceRun next(volume.options(), state);
        EXPECT_EQ(next.resumed.step, 7);
        EXPECT_TRUE(next.source.holds_step(7));
      }
    }
  }
}

// For the thread sanitizer: every way, with copies and the disk failing now and then, as fast as it goes.
TEST(DeviceStaging, RacesNothing) {
  for (const bool announced : {true, false}) {
    for (const bool room : {true, false}) {
      Volume volume;
      volume.faults.fail(Op::sync_file, 12, EIO);
      const DeviceSource::Options large{.elements = 1 << 16, .two_devices = true};
      CheckpointerOptions options = volume.options({SaveEvery::steps(1)});
      options.writing.second_image = true;
      {
        DeviceRun run(options, large);
        if (!room) run.source.device().room = 4096;
        run.source.device(1).fail_fetch = 20;
        for (int i = 0; i < 40; ++i) announced ? run.announced_step() : run.step();
        run.source.device(1).fail_fetch = -1;
        EXPECT_EQ(run.checkpointer.finish(), 0);
      }
      volume.faults.clear_faults();  // with fewer saves it is still to come
      DeviceRun next(volume.options(), large);
      EXPECT_EQ(next.resumed.step, 40);
      EXPECT_TRUE(next.source.holds_step(40));
    }
  }
}

}}  // namespace holdfast::test
