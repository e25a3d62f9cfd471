// A step at which there is nothing to decide is passed, and no event makes it one that should not be.
#include "holdfast/checkpoint/internal/quiet_steps.h"

#include <functional>
#include <map>
#include <vector>

#include "engine_rig.h"
#include "support/gate.h"

namespace holdfast::test { namespace {

class QuietStepsTest : public EngineTest {
 protected:
  QuietStepsTest() {
    start();
    step();
    engine->boundary_saves.lay_out();
  }
  void rest(std::optional<std::int64_t> next_step = {}, std::optional<SteadyTime> next_time = {}) {
    engine->quiet.end();
    engine->rest_until(next_step, next_time);
  }
  // The training comes to its next boundary, as in after_step().
  bool passes(Duration took = 2s) {
    engine->boundary.leave();
    clock.advance(took);
    engine->boundary.arrive(source.train());
    return engine->quiet.pass(source.step());
  }
};

TEST_F(QuietStepsTest, PassUntilAStepFallsDue) {
  rest(source.step() + 4);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(passes());
  EXPECT_FALSE(passes());
  EXPECT_FALSE(passes()) << "until it was decided";
}

TEST_F(QuietStepsTest, PassUntilATimeIsReached) {
  rest({}, clock.now() + 6s);
  EXPECT_TRUE(passes());
  EXPECT_TRUE(passes());
  EXPECT_FALSE(passes()) << "at that very moment";
}

TEST_F(QuietStepsTest, AreMeasuredLikeOthers) {
  step();
  rest();
  for (int i = 0; i < 64; ++i) ASSERT_TRUE(passes(5s));
  EXPECT_EQ(run->costs.costs().step, 5s);
  EXPECT_EQ(run->book->step(), source.step());
  EXPECT_EQ(run->time.boundary(), clock.now());
}

TEST_F(QuietStepsTest, EndWhereSomethingFellDueBefore) {
  rest(source.step());
  EXPECT_FALSE(engine->quiet.expected());
  rest({}, clock.now() - 1s);
  EXPECT_FALSE(passes());
}

TEST_F(QuietStepsTest, EndAtAStepBefore) {
  rest(source.step() + 100);
  EXPECT_FALSE(engine->quiet.pass(source.step() - 1));
}

TEST_F(QuietStepsTest, EndWithEachNotice) {
  const auto post = [&](NoticeKind kind) { run->monitor.post({.source = "test", .kind = kind}); };
  const auto take = [&] {
    engine->schedule.take_requests();
    engine->schedule.want(false);
  };
  const std::vector<std::pair<std::function<void()>, std::function<void()>>> notices = {
      {[&] { post(NoticeKind::at_risk); }, take},
      {[&] { post(NoticeKind::checkpoint_now); }, take},
      {[&] { deadline(1h); }, [&] { withdraw(); }},
      {[&] { stop(); }, [] {}},
  };
  for (const auto& [happens, is_over] : notices) {
    rest();
    EXPECT_TRUE(passes());
    happens();
    EXPECT_FALSE(passes());
    is_over();
  }
}

TEST_F(QuietStepsTest, EndWhenASaveHasFailed) {
  rest();
  EXPECT_TRUE(passes());
  run->writer->note_failure("no space");
  EXPECT_FALSE(passes());
}

TEST_F(QuietStepsTest, EndWhileTheWriterWorks) {
  Gate gate;
  volume.faults.set_hook([&](const Operation& operation) {
    if (operation.kind == Op::sync_file) gate.pass();
  });
  rest();
  const SaveHandle save = submit();
  gate.await_arrival();
  EXPECT_FALSE(passes());
  gate.open();
  save.wait();
  ASSERT_TRUE(run->writer->wait_idle(1min));
  EXPECT_FALSE(passes()) << "what the save cost may change when the next one is due";
  rest();
  EXPECT_TRUE(passes());
  volume.faults.set_hook({});
}

TEST_F(QuietStepsTest, DoNotBeginWhileTheWriterWorks) {
  Gate gate;
  volume.faults.set_hook([&](const Operation& operation) {
    if (operation.kind == Op::sync_file) gate.pass();
  });
  const SaveHandle save = submit();
  gate.await_arrival();
  rest();
  EXPECT_FALSE(engine->quiet.expected());
  gate.open();
  save.wait();
  ASSERT_TRUE(run->writer->wait_idle(1min));
  volume.faults.set_hook({});
}

TEST_F(QuietStepsTest, DoNotBeginWhileSomethingIsOpen) {
  const std::map<std::string, std::pair<std::function<void()>, std::function<void()>>> open = {
      {"a save is wanted", {[&] { engine->schedule.want(); }, [&] { engine->schedule.want(false); }}},
      {"the write limit is lifted", {[&] { engine->limit.lift(); }, [&] { engine->limit.restore(); }}},
      {"an evaluation runs",
       {[&] { engine->evaluation.enter(); }, [&] { engine->evaluation.leave(false, false); }}},
  };
  for (const auto& [name, change] : open) {
    change.first();
    rest();
    EXPECT_FALSE(engine->quiet.expected()) << name;
    change.second();
    rest();
    EXPECT_TRUE(engine->quiet.expected()) << name;
  }
  engine->quiet.end();
  run->outlook.leave();
  rest();
  EXPECT_FALSE(engine->quiet.expected()) << "the run is told to stop";
}

}}  // namespace holdfast::test
