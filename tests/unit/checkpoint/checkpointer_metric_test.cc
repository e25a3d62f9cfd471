// Metrics from the training loop into checkpoints, and back out of them when retention decides.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <stdexcept>
#include <variant>

#include "holdfast/format/reader.h"
#include "holdfast/staging/run_record.h"
#include "rig.h"

namespace holdfast::test { namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

RunRecord record_of(Volume& volume, const std::string& name) {
  const auto file = volume.disk.open_file(volume.path(name), OpenMode::read);
  return run_record_of(std::get<CheckpointIndex>(read_index(*file)).attributes);
}

CheckpointerOptions best_by_accuracy(Volume& volume, std::vector<SaveEvery> every, int count = 1) {
  auto options = volume.options(std::move(every));
  options.keep = KeepLast{2} | KeepBest{"accuracy", count, Better::higher};
  return options;
}

TEST(CheckpointerMetric, IsRecordedWithItsStep) {
  Volume volume;
  Attempt run(volume.options({SaveEvery::steps(4)}));
  run.train_to(4);
  run.checkpointer.metric("accuracy", 0.5);
  run.train_to(8);
  EXPECT_THAT(record_of(volume, volume.checkpoints().at(0)).metrics, IsEmpty());
  EXPECT_THAT(record_of(volume, volume.checkpoints().at(1)).metrics,
              ElementsAre(Pair("accuracy", ElementsAre(Pair(4, 0.5)))));
}

TEST(CheckpointerMetric, DecidesNothingAboutTheState) {
  const std::string expected = state_after(10);
  Volume volume;
  CapturedLog log;
  {
    Attempt run(best_by_accuracy(volume, {}));
    run.train_to(5);
    run.checkpointer.metric("accuracy", 0.5);
    EXPECT_EQ(run.checkpointer.finish(), 0);
  }
  Attempt next(best_by_accuracy(volume, {}));
  EXPECT_EQ(next.source.step(), 5);
  next.train_to(10);
  EXPECT_EQ(next.state(), expected);
}

// No save was due at the best step: being the best is reason enough.
TEST(CheckpointerMetric, ABestValueIsSaved) {
  Volume volume;
  CapturedLog log;
  Attempt run(best_by_accuracy(volume, {}));
  for (const auto& [step, value] : {std::pair{3, 0.5}, {6, 0.9}, {9, 0.7}, {12, 0.8}}) {
    run.train_to(step);
    run.checkpointer.metric("accuracy", value);
  }
  EXPECT_EQ(run.checkpointer.finish(), 0);
  // 3 was the best once, 9 never was, 12 is the end.
  EXPECT_THAT(volume.checkpoints(), ElementsAre("step-000000000006-a0001.h5", "step-000000000012-a0001.h5"));
}

TEST(CheckpointerMetric, WithoutAKeepBestNothingIsSavedForIt) {
  Volume volume;
  Attempt run(volume.options());
  run.train_to(3);
  run.checkpointer.metric("accuracy", 0.5);
  EXPECT_THAT(volume.checkpoints(), IsEmpty());
}

// The usual order of a trainer: the step's save is under way, then its evaluation runs.
TEST(CheckpointerMetric, TheBestStaysThoughItsFileDoesNotKnow) {
  Volume volume;
  CapturedLog log;
  const std::map<std::int64_t, double> accuracies{{4, 0.1}, {8, 0.9}, {12, 0.3}, {16, 0.4}, {20, 0.5}};
  for (std::int64_t life = 1; life <= 2; ++life) {
    Attempt run(best_by_accuracy(volume, {SaveEvery::steps(4)}));
    while (run.source.step() < 12 * life) {
      run.train_to(run.source.step() + 4);
      const auto value = accuracies.find(run.source.step());
      if (value == accuracies.end()) break;
      const Checkpointer::EvaluationScope scope(run.checkpointer);
      run.source.evaluate();
      run.checkpointer.metric("accuracy", value->second);
    }
    EXPECT_EQ(run.checkpointer.finish(), 0);
  }
  EXPECT_THAT(volume.checkpoints(), ElementsAre("step-000000000008-a0001.h5", "step-000000000020-a0002.h5",
                                                "step-000000000024-a0002.h5"));
}

TEST(CheckpointerMetric, InsideAnEvaluationTheBestIsSavedWhenItIsOver) {
  Volume volume;
  CapturedLog log;
  std::string boundary;
  {
    Attempt run(best_by_accuracy(volume, {}));
    run.train_to(5);
    {
      const Checkpointer::EvaluationScope scope(run.checkpointer);
      run.source.evaluate();
      run.checkpointer.metric("accuracy", 0.5);
      EXPECT_THAT(volume.checkpoints(), IsEmpty());
    }
    run.checkpointer.save().wait();
    boundary = run.state();  // of memory: no image of it is in use any more
    EXPECT_THAT(record_of(volume, volume.checkpoints().at(0)).metrics,
                ElementsAre(Pair("accuracy", testing::_)));
    EXPECT_FALSE(record_of(volume, volume.checkpoints().at(0)).evaluation_due);
  }
  Attempt next(best_by_accuracy(volume, {}));
  EXPECT_EQ(next.state(), boundary);
}

TEST(CheckpointerMetric, AnInterruptedEvaluationSavesTheBoundaryAlone) {
  Volume volume;
  CapturedLog log;
  Attempt run(best_by_accuracy(volume, {}));
  run.train_to(5);
  {
    const Checkpointer::EvaluationScope scope(run.checkpointer);
    run.checkpointer.metric("accuracy", 0.5);
    run.checkpointer.request_stop("SIGTERM");
    EXPECT_TRUE(run.checkpointer.tick());
  }
  EXPECT_EQ(run.checkpointer.finish(), 75);
  EXPECT_TRUE(record_of(volume, volume.checkpoints().at(0)).evaluation_due);
}

// Standard error that nobody reads: who writes to it waits until this is gone.
class StuckLog {
 public:
  StuckLog() : kept_(dup(STDERR_FILENO)) {
    if (pipe(pipe_.data()) != 0) throw std::runtime_error("no pipe");
    fcntl(pipe_[1], F_SETFL, O_NONBLOCK);
    while (write(pipe_[1], "................", 16) > 0) {
    }
    fcntl(pipe_[1], F_SETFL, 0);
    dup2(pipe_[1], STDERR_FILENO);
  }
  ~StuckLog() {
    dup2(kept_, STDERR_FILENO);
    for (const int descriptor : {kept_, pipe_[1], pipe_[0]}) close(descriptor);
  }
  StuckLog(const StuckLog&) = delete;
  StuckLog& operator=(const StuckLog&) = delete;
  // Those who wait go on.
  void read_on() {
    std::array<char, 65536> text{};
    EXPECT_GT(read(pipe_[0], text.data(), text.size()), 0);
  }

 private:
  int kept_;
  std::array<int, 2> pipe_{};
};

// A value whose file was never written must not keep a later one from being the best: from the step at which
// training hears of the failure, also while the writer is still busy with its report.
TEST(CheckpointerMetric, AValueWhoseSaveFailedIsNotAmongTheBest) {
  Volume volume;
  Attempt run(best_by_accuracy(volume, {}));
  StuckLog log;
  run.train_to(3);
  volume.disk.set_capacity(1000);
  run.checkpointer.metric("accuracy", 0.9);
  ASSERT_EQ(run.checkpointer.last_durable().step, -1);
  ASSERT_TRUE(soon([&] { return run.checkpointer.after_step(run.source.train()).failure.has_value(); }));
  volume.disk.set_capacity(UINT64_MAX);
  run.train_to(run.source.step() + 2);
  const std::int64_t step = run.source.step();
  run.checkpointer.metric("accuracy", 0.7);
  log.read_on();
  ASSERT_TRUE(soon([&] { return run.checkpointer.last_durable().step == step; }));
  EXPECT_THAT(record_of(volume, volume.checkpoints().back()).metrics,
              ElementsAre(Pair("accuracy", ElementsAre(Pair(step, 0.7)))));
}

TEST(CheckpointerMetric, IsRefusedOutOfPlace) {
  Volume volume;
  MemorySource source;
  Checkpointer checkpointer(source, volume.options());
  EXPECT_THROW(checkpointer.metric("accuracy", 1), UsageError);
  checkpointer.resume();
  EXPECT_THROW(checkpointer.metric("loss", 1), UsageError);
  EXPECT_THROW(checkpointer.metric("two words", 1), UsageError);
}

TEST(CheckpointerMetric, BestByLossNeedsNoWord) {
  Volume volume;
  CapturedLog log;
  auto options = volume.options({SaveEvery::steps(1)});
  options.keep = KeepLast{2} | KeepBest{};
  Attempt run(options);
  std::int64_t best = 1;
  std::map<std::int64_t, double> losses;
  while (run.source.step() < 12) {
    StepReport report = run.source.train();
    const double own = run.source.step() == 4 ? -5.0 : 1.0 + static_cast<double>(run.source.step());
    report.loss = own;
    run.checkpointer.after_step(report);
    losses[run.source.step()] = own;
    if (own < losses[best]) best = run.source.step();
    run.checkpointer.save().wait();
  }
  EXPECT_EQ(run.checkpointer.finish(), 0);
  EXPECT_EQ(best, 5);
  EXPECT_THAT(volume.checkpoints(), ElementsAre("step-000000000005-a0001.h5", "step-000000000011-a0001.h5",
                                                "step-000000000012-a0001.h5"));
}

}}  // namespace holdfast::test
