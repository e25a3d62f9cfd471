// Results that come one step late (StepReport::late): read once, before anything looks at them, and a run has
// the same files, ledger and losses as one that knows them at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "holdfast/ledger/loss_ring.h"
#include "holdfast/staging/run_record.h"
#include "holdfast/writing/file_verifier.h"
#include "rig.h"
#include "slow_disk.h"
#include "support/ledger_lines.h"

namespace holdfast::test::late_result { namespace {

using testing::HasSubstr;

struct Late final : LateReport {
  explicit Late(double loss) : numbers{.loss = loss} {}
  Numbers read() override {
    ++reads;
    if (broken) throw Error("the device has failed");
    return numbers;
  }
  Numbers numbers;
  bool broken = false;
  int reads = 0;
};

StepReport late_report(StepReport report, std::shared_ptr<Late>& late) {
  late = std::make_shared<Late>(report.loss.value());
  report.late = late;
  report.loss = std::numeric_limits<double>::quiet_NaN();  // not looked at
  return report;
}

RunRecord record_in(Volume& volume, const std::string& name) {
  const auto file = volume.disk.open_file(volume.path(name), OpenMode::read);
  return run_record_of(std::get<CheckpointIndex>(read_index(*file)).attributes);
}

TEST(LateResult, IsReadByTheNextUpdateAndNotBefore) {
  Volume volume;
  Attempt run(volume.options());
  run.step();  // the first one lays out the file
  std::shared_ptr<Late> late;
  run.checkpointer.after_step(late_report(run.source.train(), late));
  EXPECT_EQ(late->reads, 0);
  EXPECT_FALSE(run.checkpointer.tick());
  EXPECT_EQ(late->reads, 0);
  run.checkpointer.before_update();
  EXPECT_EQ(late->reads, 1);
  std::shared_ptr<Late> second;
  run.checkpointer.after_step(late_report(run.source.train(), second));
  run.checkpointer.after_step(run.source.train());
  EXPECT_EQ(second->reads, 1) << "a loop without before_update()";
  EXPECT_EQ(run.checkpointer.finish(), 0);
  EXPECT_EQ(late->reads + second->reads, 2);
}

// Each of these looks at the boundary, or keeps it.
TEST(LateResult, EveryCallThatNeedsItReadsItFirst) {
  const std::vector<std::pair<const char*, std::function<void(Attempt&)>>> calls{
      {"save", [](Attempt& run) { run.checkpointer.save().wait(); }},
      {"metric", [](Attempt& run) { run.checkpointer.metric("m", 1); }},
      {"state_digest", [](Attempt& run) { run.state(); }},
      {"evaluation", [](Attempt& run) { Checkpointer::EvaluationScope scope(run.checkpointer); }},
      {"finish", [](Attempt& run) { run.checkpointer.finish(); }},
  };
  for (const auto& [name, call] : calls) {
    Volume volume;
    Attempt run(volume.options());
    run.step();
    std::shared_ptr<Late> late;
    run.checkpointer.after_step(late_report(run.source.train(), late));
    call(run);
    EXPECT_EQ(late->reads, 1) << name;
    run.checkpointer.finish();
    EXPECT_EQ(record_in(volume, volume.checkpoints().back()).loss, late->numbers.loss) << name;
    EXPECT_EQ(late->reads, 1) << name;
  }
}

TEST(LateResult, ASaveAStopAndARequestReadItInsideAfterStep) {
  const std::vector<std::pair<const char*, std::function<void(Attempt&)>>> reasons{
      {"policy", [](Attempt&) {}},
      {"request", [](Attempt& run) { run.checkpointer.request_save(); }},
      {"stop", [](Attempt& run) { run.checkpointer.request_stop("enough"); }},
  };
  for (const auto& [name, ask] : reasons) {
    Volume volume;
    const bool policy = std::string(name) == "policy";
    Attempt run(policy ? volume.options({SaveEvery::steps(2)}) : volume.options());
    run.step();
    ask(run);
    std::shared_ptr<Late> late;
    const Decision decision = run.checkpointer.after_step(late_report(run.source.train(), late));
    EXPECT_EQ(late->reads, 1) << name;
    EXPECT_TRUE(decision.saved) << name;
    run.checkpointer.finish();
    const RunRecord record = record_in(volume, volume.checkpoints().back());
    EXPECT_EQ(record.loss, late->numbers.loss) << name;
    EXPECT_TRUE(record.finite);
  }
}

TEST(LateResult, ANaNThatComesLateIsRecordedAsSuch) {
  Volume volume;
  CapturedLog log;
  Attempt run(volume.options());
  run.step();
  std::shared_ptr<Late> late;
  StepReport report = late_report(run.source.train(), late);
  late->numbers.loss = std::numeric_limits<double>::quiet_NaN();
  run.checkpointer.after_step(report);
  EXPECT_EQ(run.checkpointer.finish(), 0);
  EXPECT_FALSE(record_in(volume, volume.checkpoints().back()).finite);
  EXPECT_THAT(log.text(), HasSubstr("the loss of step 2 is nan"));
}

TEST(LateResult, AReadThatFailsLeavesNoCheckpointOfThatStep) {
  Volume volume;
  Attempt run(volume.options());
  run.step();
  run.checkpointer.save().wait();
  std::shared_ptr<Late> late;
  run.checkpointer.after_step(late_report(run.source.train(), late));
  late->broken = true;
  EXPECT_THROW(run.checkpointer.save(), Error);
  EXPECT_THROW(run.checkpointer.state_digest(), Error);
  EXPECT_THROW(run.checkpointer.before_update(), Error);
  EXPECT_THROW(run.checkpointer.finish(), Error);
  EXPECT_EQ(volume.checkpoints(), std::vector<std::string>{"step-000000000001-a0001.h5"});
}

TEST(LateResult, AReadThatFailsInAfterStepIsAFailedSave) {
  Volume volume;
  Attempt run(volume.options({SaveEvery::steps(2)}));
  run.step();
  std::shared_ptr<Late> late;
  StepReport report = late_report(run.source.train(), late);
  late->broken = true;
  const Decision decision = run.checkpointer.after_step(report);
  EXPECT_EQ(decision.save.wait(), SaveStatus::failed);
  EXPECT_THAT(decision.save.error(), HasSubstr("the device has failed"));
  EXPECT_THROW(run.checkpointer.before_update(), Error);
  EXPECT_TRUE(volume.checkpoints().empty());
}

TEST(LateResult, AWriteInFlightMakesNoStepReadItsResult) {
  Volume volume;
  SlowDisk disk(volume);
  Attempt run(volume.options({SaveEvery::steps(1)}));
  run.step();
  disk.await(1);
  for (int i = 0; i < 3; ++i) run.step();  // every image is in use from here on, and a save stays due
  for (int i = 0; i < 5; ++i) {
    std::shared_ptr<Late> late;
    const Decision decision = run.checkpointer.after_step(late_report(run.source.train(), late));
    EXPECT_FALSE(decision.saved);
    EXPECT_EQ(late->reads, 0) << i;
    run.checkpointer.before_update();
    EXPECT_EQ(late->reads, 1) << i;
  }
  run.checkpointer.after_step(run.source.train());
  disk.finish(100);
  EXPECT_EQ(run.checkpointer.finish(), 0);
}

// A run in several lives, each but the last ended like a crash; returns what it left behind.
struct Left {
  std::vector<std::string> checkpoints;
  std::vector<std::optional<double>> losses;            // recorded in them
  std::vector<std::map<std::int64_t, double>> ledgers;  // losses of each life
  std::string state, log;
};

Left lives(bool late, std::uint64_t seed) {
  Volume volume;
  CapturedLog log;
  std::uint64_t draw = seed;
  Left left;
  for (int life = 0; life < 4; ++life) {
    CheckpointerOptions options = volume.options({SaveEvery::steps(3)});
    options.keep = KeepLast{100};
    Attempt run(options);
    draw = draw * 6364136223846793005U + 1442695040888963407U;
    const std::int64_t last = life == 3 ? 40 : run.source.step() + 1 + static_cast<std::int64_t>(draw >> 60);
    std::shared_ptr<Late> pending;
    while (run.source.step() < std::min<std::int64_t>(last, 40)) {
      StepReport report = run.source.train();
      run.checkpointer.before_update();
      EXPECT_TRUE(!pending || pending->reads == 1);
      if (late) report = late_report(report, pending);
      const Decision decision = run.checkpointer.after_step(report);
      if (decision.saved) run.checkpointer.save().wait();
    }
    if (life < 3) continue;
    left.state = run.state();
    EXPECT_EQ(run.checkpointer.finish(), 0);
  }
  left.checkpoints = volume.checkpoints();
  for (const std::string& name : left.checkpoints) left.losses.push_back(record_in(volume, name).loss);
  for (AttemptNumber attempt = 1; attempt <= 4; ++attempt) {
    left.ledgers.push_back(losses_in(ledger_lines(volume.disk, kRun, attempt)));
  }
  left.log = log.text();
  return left;
}

TEST(LateResult, RunsThatAreKilledAndResumedLeaveTheSameBehind) {
  int verified = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const Left at_once = lives(false, seed), late = lives(true, seed);
    EXPECT_EQ(at_once.checkpoints, late.checkpoints) << seed;
    EXPECT_EQ(at_once.losses, late.losses) << seed;
    EXPECT_EQ(at_once.state, late.state) << seed;
    EXPECT_EQ(at_once.ledgers.back(), late.ledgers.back()) << seed;
    for (std::size_t life = 0; life < 3; ++life) {  // the last loss of a killed life was never known
      const auto &all = at_once.ledgers[life], &known = late.ledgers[life];
      EXPECT_LE(all.size(), known.size() + 1) << seed;
      for (const auto& [step, loss] : known) EXPECT_EQ(all.at(step), loss) << seed << ", step " << step;
    }
    EXPECT_EQ(at_once.log.find("differ"), std::string::npos);
    EXPECT_EQ(late.log.find("differ"), std::string::npos);
    if (late.log.find("bit-identical") != std::string::npos) ++verified;
  }
  EXPECT_GE(verified, 2) << "lives that computed steps again";
}

}}  // namespace holdfast::test::late_result
