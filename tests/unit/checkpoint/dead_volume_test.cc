// The server of the volume goes away: no end of a run waits for a disk that hangs, past the announced end.
#include <atomic>
#include <functional>
#include <future>
#include <thread>

#include "holdfast/store/run_state.h"
#include "noticed.h"
#include "support/gate.h"

namespace holdfast::test { namespace {

using testing::EndsWith;

class DeadVolume : public Noticed {
 protected:
  ~DeadVolume() override {
    revive();
    end_with_all_threads();
  }
  // Every call on a path with `part` in it hangs.
  void die(const std::string& part) {
    volume.faults.set_hook([dead = dead_, part](const Operation& operation) {
      if (operation.path.find(part) != std::string::npos) dead->pass();
    });
  }
  void await_hang() { dead_->await_arrival(); }
  // From here on the disk answers again, so that the threads can end.
  void revive() {
    volume.faults.set_hook({});
    dead_->open();
  }
  // One step, which is durable.
  void start_saved() {
    start();
    step();
    ASSERT_EQ(run->checkpointer.save().wait(), SaveStatus::durable);
  }
  // The idle writer looks for newer attempts, and gets no answer.
  // With some looks before, because then it is idle, and does not tidy up after a save.
  void hang_in_a_look(int looks_before = 0) {
    for (int looks = 0; looks < looks_before; ++looks) {
      const auto asked = [this] { return volume.faults.log().size(); };
      const std::size_t before = asked();
      volume.clock.advance(10s);
      ASSERT_TRUE(soon([&] { return asked() > before; }));
    }
    die("attempts");
    volume.clock.advance(10s);
    await_hang();
  }
  // A minute passes while `work` waits for the disk: twice the time to the end. False: it hangs.
  bool ends_by_itself(const std::function<void()>& work) {
    std::atomic<bool> began{false};
    auto ended = std::async(std::launch::async, [&] {
      began = true;
      work();
    });
    const auto within = [&](auto time) { return ended.wait_for(time) == std::future_status::ready; };
    EXPECT_TRUE(soon([&] { return began.load(); }));
    bool by_itself = within(100ms);  // it decides before the end has passed
    for (int i = 0; i < 60 && !by_itself; ++i) {
      volume.clock.advance(1s);
      by_itself = within(10ms);
    }
    by_itself = by_itself || within(20s);
    if (!by_itself) revive();
    return by_itself;
  }
  bool finishes_by_itself() {
    return ends_by_itself([this] { code = run->checkpointer.finish(); });
  }
  RunState told() { return read_run_state(*volume.disk.open_directory(kRun, false)).value_or(RunState{}); }
  void expect_left_behind(int expected) {
    EXPECT_EQ(code, expected);
    EXPECT_EQ(told().phase, RunPhase::running) << "the thread that hangs still has the store";
    run.reset();
    EXPECT_THAT(log.text(), HasSubstr("a thread hangs in the disk and is left behind"));
  }

  int code = -1;

 private:
  const std::shared_ptr<Gate> dead_ = std::make_shared<Gate>();
};

TEST_F(DeadVolume, HoldsNoEndWhenTheIdleWriterLooksForNewerAttempts) {
  start_saved();
  hang_in_a_look();
  announcer.stop(now() + 30s);
  EXPECT_TRUE(finishes_by_itself());
  EXPECT_EQ(run->checkpointer.stop_reason(), "SIGTERM") << "the last step is durable";
  expect_left_behind(75);
}

TEST_F(DeadVolume, HoldsNoEndWithoutALastSave) {
  commit = 60s;
  start_saved();
  step();
  hang_in_a_look(3);
  announcer.stop(now() + 30s);
  EXPECT_TRUE(finishes_by_itself());
  EXPECT_THAT(run->checkpointer.stop_reason(), HasSubstr("no time was left to save step 2"));
  expect_left_behind(75);
}

TEST_F(DeadVolume, HoldsNoRunThatBreaksOff) {
  start_saved();
  hang_in_a_look();
  announcer.deadline(now() + 30s);
  run->source.on_describe = [] { throw UnsavableError("no file can hold this"); };
  EXPECT_TRUE(ends_by_itself([this] {
    run->checkpointer.request_save();
    EXPECT_THROW(run->step(), UsageError);
  }));
  code = run->checkpointer.finish();
  expect_left_behind(static_cast<int>(UsageError("").exit_code()));
}

// The volume dies after the writer's last look: these lines are the next that go to the disk.
TEST_F(DeadVolume, HoldsNoEndAtTheLastLedgerLines) {
  start_saved();
  die("ledger");
  announcer.stop(now() + 30s);  // a line
  EXPECT_TRUE(finishes_by_itself());
  expect_left_behind(75);
}

TEST_F(DeadVolume, HoldsNoEndAtTheRunState) {
  start_saved();
  die("state");
  announcer.stop(now() + 30s);
  EXPECT_TRUE(finishes_by_itself());
  expect_left_behind(75);
}

// A disk that is only slow: what follows a save that ended in time is still written.
TEST_F(DeadVolume, ThatComesBackSoonAfterTheEndGetsTheRunState) {
  start_saved();
  die("state");
  announcer.stop(now() + 30s);
  auto ended = std::async(std::launch::async, [this] { return run->checkpointer.finish(); });
  await_hang();
  volume.clock.advance(60s);
  revive();
  EXPECT_EQ(ended.get(), 75);
  EXPECT_EQ(told().phase, RunPhase::interrupted);
  EXPECT_EQ(told().exit_code, 75);
  EXPECT_EQ(told().reason, "SIGTERM");
  EXPECT_EQ(told().durable_step, 1);
}

// Told to stop, or the end is announced alone; something of the run is durable, or nothing.
class HungLastSave : public DeadVolume, public testing::WithParamInterface<std::tuple<bool, bool>> {};
INSTANTIATE_TEST_SUITE_P(, HungLastSave, testing::Combine(testing::Bool(), testing::Bool()));

TEST_P(HungLastSave, IsLeftBehindWhenTheTimeIsUp) {
  const auto [stopped, durable] = GetParam();
  options.notices.on_notice = OnNotice::exit;
  if (durable) {
    start_saved();
  } else {
    start();
  }
  run->step();
  die("step-");
  stopped ? announcer.stop(now() + 30s) : announcer.deadline(now() + 30s);
  EXPECT_TRUE(finishes_by_itself());
  EXPECT_THAT(run->checkpointer.stop_reason(), EndsWith("; the last save did not end in time"));
  expect_left_behind(durable ? 75 : 74);
}

}}  // namespace holdfast::test
