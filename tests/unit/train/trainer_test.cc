#include "holdfast/train/trainer.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <thread>
#include <variant>

#include "fake_graphs.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/distributed/data_parallel.h"
#include "holdfast/distributed/process_group.h"
#include "holdfast/format/reader.h"
#include "holdfast/optim/ema.h"
#include "holdfast/precision/grad_scaler.h"
#include "holdfast/staging/run_record.h"
#include "holdfast/store/names.h"
#include "support/subprocess.h"

namespace holdfast { namespace {

struct Numbers {
  struct Sample {
    at::Tensor x;
    at::Tensor y;
  };
  std::int64_t count;
  std::int64_t size() const { return count; }
  Sample get(std::int64_t index) const {
    const at::Tensor x = torch::full({2}, static_cast<float>(index % 7) / 7);
    return {x, x.sum(0, true)};
  }
};

struct Recorder final : MetricSink {
  void begin(const BeginEvent& event) override {
    EXPECT_TRUE(steps.empty() && evaluations.empty());
    begins.push_back(event);
  }
  void step(const StepEvent& event) override {
    steps.push_back(event);
    if (on_step) on_step(event);
  }
  void evaluation(const EvaluationEvent& event) override { evaluations.push_back(event); }
  void finish() override { ++finished; }
  std::function<void()> row_sync() override {
    return [this] { ++synced; };
  }
  std::atomic<int> synced{0};
  std::vector<BeginEvent> begins;
  std::vector<StepEvent> steps;
  std::vector<EvaluationEvent> evaluations;
  int finished = 0;
  std::function<void(const StepEvent&)> on_step;
};

// One life of a small run: 4 updates an epoch.
struct Life {
  explicit Life(const std::filesystem::path& directory, std::int64_t accumulation = 1)
      : data((torch::manual_seed(3), Numbers{16 * accumulation}),
             {.batch_size = 4, .seed = 5, .accumulation = accumulation, .workers = 0}),
        test_data(Numbers{10},
                  {.batch_size = 4, .epochs = 1, .shuffle = false, .drop_last = false, .workers = 0}),
        net(torch::nn::Linear(2, 4), torch::nn::Dropout(0.5), torch::nn::Linear(4, 1)),
        optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)),
        step(optimizer,
             [this](const Batch& batch) {
               return torch::nn::functional::mse_loss(net->forward(batch.inputs), batch.targets);
             },
             {.accumulation = accumulation}) {
    set_log_level(LogLevel::error);
    state.add("model", *net);
    state.add("optimizer", optimizer);
    state.add("data", data);
    checkpointer = std::make_unique<Checkpointer>(
        state, CheckpointerOptions{.directory = directory, .every = {}, .notices = {.hear_signals = false}});
  }
  ~Life() { set_log_level(LogLevel::info); }
  TrainerParts parts() {
    return {.state = state,
            .checkpointer = *checkpointer,
            .model = *net,
            .data = data,
            .step = step,
            .learning_rate = [](std::int64_t done) { return 0.1 / static_cast<double>(done + 1); },
            .test_data = &test_data,
            .score =
                [this](const Batch& batch) {
                  if (on_score) on_score();
                  EXPECT_FALSE(net->is_training());
                  EXPECT_FALSE(net->forward(batch.inputs).requires_grad());
                  scored += batch.inputs.size(0);
                  return Score{.correct = 1, .loss_sum = 2};
                },
            .sinks = {&recorder}};
  }
  TrainerResult run(std::int64_t steps) {
    Trainer trainer(parts(), {.steps = steps});
    const int code = trainer.run();
    EXPECT_EQ(code, trainer.result().exit_code);
    return trainer.result();
  }

  TrainState state;
  Loader data;
  Loader test_data;
  torch::nn::Sequential net;
  torch::optim::SGD optimizer;
  Step step;
  std::unique_ptr<Checkpointer> checkpointer;
  Recorder recorder;
  std::function<void()> on_score;
  std::int64_t scored = 0;
};

class TrainerTest : public ::testing::Test {
 protected:
  std::filesystem::path directory(const char* name = "run") { return folder_.path() / name; }
  test::TemporaryFolder folder_;
};

// A device without room for it, for one.
TEST_F(TrainerTest, AHistogramThatFailsEndsNoTraining) {
  struct Full : MetricSink {
    void step(const StepEvent&) override {}
    void histogram(const HistogramEvent&) override {
      ++calls;
      throw std::bad_alloc();
    }
    int calls = 0;
  } full;
  Life life(directory());
  TrainerParts parts = life.parts();
  parts.sinks = {&full};
  Trainer trainer(std::move(parts), {.steps = 10, .histograms_every = 2});
  EXPECT_EQ(trainer.run(), 0);
  EXPECT_EQ(full.calls, 1);
}

// --init-from replaces the weights that the average was made with.
TEST_F(TrainerTest, AFreshRunAveragesFromTheWeightsThatItBeginsWith) {
  Life life(directory());
  Ema average(*life.net, {.decay = 1, .warm_up = false});
  TrainerParts parts = life.parts();
  parts.average = &average;
  parts.resumed = [&](const Resumed&) {
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : life.net->parameters()) parameter.fill_(0.25);
  };
  Trainer trainer(std::move(parts), {.steps = 3});
  EXPECT_EQ(trainer.run(), 0);
  const auto averaged = average.swap_in();
  for (const at::Tensor& parameter : life.net->parameters()) {
    EXPECT_TRUE(parameter.detach().eq(0.25).all().item<bool>());
  }
}

// Without an end: as many steps as there are.
TEST_F(TrainerTest, ARunOfTheMostStepsHasNoTimeLeft) {
  Life life(directory());
  Trainer trainer(life.parts(), {.steps = std::numeric_limits<std::int64_t>::max()});
  life.recorder.on_step = [&](const StepEvent& event) {
    EXPECT_FALSE(event.time_left);
    EXPECT_GT(event.epochs, std::numeric_limits<std::int64_t>::max() / 8);
    if (event.step == 5) life.checkpointer->request_stop("enough");
  };
  EXPECT_EQ(trainer.run(), 75);
}

// Saved at step 8 by what was measured there, and recorded in it; 10 is the end.
TEST_F(TrainerTest, WhatAnEvaluationGivesIsRecordedAndKept) {
  Life life(directory());
  life.checkpointer = std::make_unique<Checkpointer>(
      life.state, CheckpointerOptions{.directory = directory(),
                                      .every = {},
                                      .keep = KeepLast{2} | KeepBest{"test_accuracy", 1, Better::higher},
                                      .notices = {.hear_signals = false}});
  std::int64_t scored = 0;
  life.on_score = [&] { ++scored; };
  TrainerParts parts = life.parts();
  parts.score = [&](const Batch& batch) {
    life.on_score();
    // Three batches an evaluation; the second evaluation, at step 8, is the best.
    return Score{.correct = scored > 3 && scored <= 6 ? static_cast<double>(batch.inputs.size(0)) : 0,
                 .loss_sum = 1};
  };
  Trainer trainer(std::move(parts), {.steps = 14});
  ASSERT_EQ(trainer.run(), 0);
  std::map<std::int64_t, Metrics> recorded;
  for (const auto& entry : std::filesystem::directory_iterator(directory())) {
    const auto id = parse_checkpoint_name(entry.path().filename().native());
    if (!id) continue;
    const auto file = FileSystem::real().open_file(entry.path(), OpenMode::read);
    recorded[id->step] = run_record_of(std::get<CheckpointIndex>(read_index(*file)).attributes).metrics;
  }
  ASSERT_TRUE(recorded.contains(8));
  EXPECT_EQ(recorded.at(8).at("test_accuracy").at(8), 1.0);
  // The accuracy was reason enough to save; what was told after it is in the next file.
  ASSERT_TRUE(recorded.contains(14));
  EXPECT_EQ(recorded.at(14).at("test_accuracy").at(8), 1.0);
  EXPECT_EQ(recorded.at(14).at("test_loss").at(8), 0.3);
}

TEST_F(TrainerTest, TrainsToTheFinalStepAndEvaluatesAfterEachEpoch) {
  Life life(directory());
  const TrainerResult result = life.run(10);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.outcome, TrainerResult::Outcome::complete);
  EXPECT_EQ(result.step, 10);
  EXPECT_EQ(result.epochs, 2);
  ASSERT_EQ(life.recorder.steps.size(), 10U);
  EXPECT_EQ(life.recorder.steps.front().step, 1);
  EXPECT_EQ(life.recorder.steps[4].epoch, 1);
  EXPECT_EQ(life.recorder.steps[3].samples, 16);
  EXPECT_EQ(life.recorder.steps[4].samples, 20);
  EXPECT_EQ(life.recorder.steps.front().learning_rate, 0.1);
  EXPECT_EQ(*life.recorder.steps.front().epochs, 3);
  EXPECT_EQ(result.loss, life.recorder.steps.back().loss);
  // After both epochs and at the end; 10 samples and 3 batches each.
  ASSERT_EQ(life.recorder.evaluations.size(), 3U);
  EXPECT_EQ(life.recorder.evaluations[1].step, 8);
  EXPECT_EQ(life.recorder.evaluations[2].step, 10);
  EXPECT_EQ(life.recorder.evaluations[0].samples, 10);
  EXPECT_DOUBLE_EQ(*result.test_accuracy, 0.3);
  EXPECT_DOUBLE_EQ(life.recorder.evaluations[0].loss, 0.6);
  EXPECT_TRUE(life.net->is_training());
  EXPECT_EQ(life.recorder.finished, 1);
  EXPECT_EQ(result.state.size(), 32U);
}

TEST_F(TrainerTest, SinksHearFirstWhereTheRunGoesOn) {
  for (const std::int64_t begins_at : {0, 6}) {
    Life life(directory());
    life.run(begins_at + 6);
    ASSERT_EQ(life.recorder.begins.size(), 1U);
    EXPECT_EQ(life.recorder.begins[0].step, begins_at);
    EXPECT_EQ(life.recorder.begins[0].attempt, begins_at == 0 ? 1U : 2U);
    EXPECT_EQ(life.recorder.steps.front().step, begins_at + 1);
    EXPECT_EQ(life.recorder.steps.front().samples, 4 * (begins_at + 1));
  }
}

// 14 samples: 3 batches of 4, and 2 samples that no step sees.
TEST_F(TrainerTest, SamplesThatAnEpochLeavesOutAreNotCounted) {
  Life life(directory());
  life.data = Loader(Numbers{14}, {.batch_size = 4, .seed = 5, .workers = 0});
  life.run(8);
  EXPECT_EQ(life.recorder.steps[2].samples, 12);
  EXPECT_EQ(life.recorder.steps[3].samples, 16);
  EXPECT_EQ(life.recorder.steps.back().samples, 32);
}

TEST_F(TrainerTest, TheNextStepTellsTheSinksOfASaveThatBecameDurable) {
  Life life(directory());
  life.recorder.on_step = [&](const StepEvent& event) {
    if (event.step == 2) life.checkpointer->request_save();
    if (event.step != 4) return;
    // The figures come a moment after the acknowledgement.
    while (life.checkpointer->figures().last_step < 2) std::this_thread::yield();
  };
  ASSERT_EQ(life.run(7).exit_code, 0);
  std::vector<std::int64_t> told;
  for (const StepEvent& event : life.recorder.steps) {
    if (!event.saved) continue;
    told.push_back(event.saved->step);
    EXPECT_GT(event.saved->bytes, 0U);
    EXPECT_GE(event.saved->risk_steps, 2);
    EXPECT_LE(event.step, 5);
  }
  EXPECT_EQ(told, std::vector<std::int64_t>{2});
}

TEST_F(TrainerTest, EachCommitComesAfterASyncOfTheSinks) {
  Life life(directory());
  life.recorder.on_step = [&](const StepEvent& event) {
    if (event.step == 2) life.checkpointer->request_save();
    while (event.step == 4 && life.checkpointer->figures().durable < 1) std::this_thread::yield();
    if (event.step > 3) {
      EXPECT_EQ(life.recorder.synced, 1);
    }
  };
  ASSERT_EQ(life.run(7).exit_code, 0);
  EXPECT_EQ(life.recorder.synced, 2) << "that save, and the last one";
}

TEST_F(TrainerTest, StoppedAndResumedItEndsAsTheStraightRun) {
  for (const std::int64_t accumulation : {1, 3}) {
    const std::string name = std::to_string(accumulation);
    Life straight(directory(("straight" + name).c_str()), accumulation);
    const TrainerResult expected = straight.run(11);
    const auto run = directory(("run" + name).c_str());
    TrainerResult result;
    std::vector<double> losses;
    for (const std::int64_t stop_at : {3, 4, 7, 1000}) {
      Life life(run, accumulation);
      life.recorder.on_step = [&](const StepEvent& event) {
        losses.push_back(event.loss);
        if (event.step == stop_at) life.checkpointer->request_stop("a test");
      };
      result = life.run(11);
      if (stop_at == 1000) break;
      EXPECT_EQ(result.exit_code, 75);
      EXPECT_EQ(result.outcome, TrainerResult::Outcome::interrupted);
      EXPECT_EQ(result.step, stop_at);
      EXPECT_NE(result.checkpoint, "");
      EXPECT_NE(to_line(result).find("reason=a_test"), std::string::npos) << to_line(result);
    }
    EXPECT_EQ(to_line(result), to_line(expected));
    ASSERT_EQ(losses.size(), 11U);
    for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_EQ(losses[i], straight.recorder.steps[i].loss);
  }
}

// One rank whose collectives are made all the same: the sums of losses, the Reducer, evaluations in rounds.
struct RankLife : Life {
  RankLife(const std::filesystem::path& directory, std::int64_t accumulation)
      : Life(directory, accumulation), parallel(*net, group) {
    step = Step(optimizer,
                [this](const Batch& batch) {
                  return torch::nn::functional::mse_loss(net->forward(batch.inputs), batch.targets);
                },
                {.accumulation = accumulation, .parallel = &parallel});
  }
  ~RankLife() { group.leave(); }
  ProcessGroup group{{.place = {}, .even_alone = true}};
  DataParallel parallel;
};

TEST_F(TrainerTest, OneRankWithItsCollectivesEndsAsTheStraightRunWithout) {
  for (const std::int64_t accumulation : {1, 2}) {
    const std::string name = std::to_string(accumulation);
    Life straight(directory(("straight" + name).c_str()), accumulation);
    const TrainerResult expected = straight.run(10);
    RankLife life(directory(("run" + name).c_str()), accumulation);
    EXPECT_EQ(to_line(life.run(10)), to_line(expected));
    ASSERT_EQ(life.recorder.evaluations.size(), straight.recorder.evaluations.size());
    for (std::size_t i = 0; i < life.recorder.evaluations.size(); ++i) {
      EXPECT_EQ(life.recorder.evaluations[i].accuracy, straight.recorder.evaluations[i].accuracy);
      EXPECT_EQ(life.recorder.evaluations[i].loss, straight.recorder.evaluations[i].loss);
      EXPECT_EQ(life.recorder.evaluations[i].samples, 10);
    }
  }
}

TEST_F(TrainerTest, DataThatIsNotDividedOverTheRanksIsRefused) {
  RankLife life(directory(), 1);
  Loader half(Numbers{16}, {.batch_size = 2, .workers = 0, .shard = {1, 2}});
  TrainerParts parts = life.parts();
  parts.test_data = &half;
  try {
    Trainer(std::move(parts), {.steps = 4});
    FAIL() << "not refused";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "the test data is not divided over the ranks: give its loader .shard = {0, 1}");
  }
}

// Of two ranks one would begin the next epoch while the other is still at the rest of this one.
TEST_F(TrainerTest, TrainingDataWithARestIsRefusedForRanks) {
  RankLife life(directory(), 1);
  const auto refusal = [&](std::int64_t size, bool drop_last) -> std::string {
    life.data =
        Loader(Numbers{size}, {.batch_size = 4, .drop_last = drop_last, .accumulation = 2, .workers = 0});
    try {
      Trainer(life.parts(), {.steps = 4});
      return "";
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(refusal(20, false),
            "the training data ends with a rest of 4 samples, and an update of all ranks takes 8: give its "
            "loader .drop_last = true");
  EXPECT_EQ(refusal(24, false), "") << "nothing is left over";
  EXPECT_EQ(refusal(20, true), "");
}

// The same with forward and backward as graphs, on a device that pretends.
struct GraphLife : Life {
  GraphLife(const std::filesystem::path& directory, std::int64_t accumulation)
      : Life(directory, accumulation), graphs(std::make_shared<test::FakeGraphs>(*net)) {
    StepOptions options{.accumulation = accumulation, .graph = true};
    options.graph_options = {.warm_up = 2, .device = graphs};
    step = Step(
        optimizer,
        [this](const Batch& batch) {
          return torch::nn::functional::mse_loss(net->forward(batch.inputs), batch.targets);
        },
        options);
  }
  std::shared_ptr<test::FakeGraphs> graphs;
};

TEST_F(TrainerTest, ResumedWithGraphsItEndsAsTheStraightRunWithout) {
  for (const std::int64_t accumulation : {1, 2}) {
    const std::string name = std::to_string(accumulation);
    Life straight(directory(("straight" + name).c_str()), accumulation);
    const TrainerResult expected = straight.run(16);
    TrainerResult result;
    for (const std::int64_t stop_at : {1, 7, 1000}) {
      GraphLife life(directory(("run" + name).c_str()), accumulation);
      life.recorder.on_step = [&](const StepEvent& event) {
        if (event.step == stop_at) life.checkpointer->request_stop("a test");
      };
      result = life.run(16);
      EXPECT_EQ(life.graphs->replays > 0, stop_at > 1) << "stopped at " << stop_at;
    }
    EXPECT_EQ(to_line(result), to_line(expected));
  }
}

// A life whose updates 3, 4 and 8 (counted from 1) overflow, in FP16's way of training.
struct OverflowingLife : Life {
  explicit OverflowingLife(const std::filesystem::path& directory)
      : Life(directory), scaler(at::kCPU, {.init_scale = 1024, .growth_interval = 3}), ema(*net) {
    state.add("scaler", scaler);
    state.add("ema", ema);
    step = Step(
        optimizer,
        [this](const Batch& batch) {
          const at::Tensor loss = torch::nn::functional::mse_loss(net->forward(batch.inputs), batch.targets);
          const std::int64_t now = state.step() + 1;
          return now == 3 || now == 4 || now == 8 ? loss * std::numeric_limits<float>::infinity() : loss;
        },
        {.scaler = &scaler});
  }
  TrainerResult run(std::int64_t steps) {
    TrainerParts parts = this->parts();
    parts.learning_rate = [this](std::int64_t applied) {
      counts.push_back(applied);
      return 0.1 / static_cast<double>(applied + 1);
    };
    parts.applied = [this] { ema.update(); };
    Trainer trainer(std::move(parts), {.steps = steps});
    trainer.run();
    return trainer.result();
  }
  GradScaler scaler;
  Ema ema;
  std::vector<std::int64_t> counts;
};

TEST_F(TrainerTest, ASkippedUpdateIsAStepThatNeitherScheduleNorAverageSees) {
  OverflowingLife straight(directory("straight"));
  const TrainerResult expected = straight.run(10);
  EXPECT_EQ(expected.exit_code, 0);
  EXPECT_EQ(expected.step, 10) << "a run that overflows still comes to its end";
  EXPECT_EQ(expected.epochs, 2);
  EXPECT_EQ(straight.counts, (std::vector<std::int64_t>{0, 1, 2, 2, 2, 3, 4, 5, 5, 6}));
  EXPECT_EQ(straight.ema.updates(), 7);
  EXPECT_EQ(straight.state.skipped(), 3);
  EXPECT_EQ(straight.scaler.skipped(), 3);
  std::vector<std::int64_t> skipped;
  for (const StepEvent& event : straight.recorder.steps) {
    if (event.skipped) skipped.push_back(event.step);
  }
  EXPECT_EQ(skipped, (std::vector<std::int64_t>{3, 4, 8}));

  // A life each round every skip.
  TrainerResult result;
  std::vector<std::int64_t> counts;
  for (const std::int64_t stop_at : {2, 3, 4, 7, 8, 9, 1000}) {
    OverflowingLife life(directory());
    life.recorder.on_step = [&](const StepEvent& event) {
      if (event.step == stop_at) life.checkpointer->request_stop("a test");
    };
    result = life.run(10);
    counts.insert(counts.end(), life.counts.begin(), life.counts.end());
  }
  EXPECT_EQ(to_line(result), to_line(expected));
  EXPECT_EQ(counts, straight.counts);
}

TEST_F(TrainerTest, AnEvaluationThatWasCutShortIsMadeUpFor) {
  Life straight(directory("straight"));
  const TrainerResult expected = straight.run(6);

  Life first(directory());
  first.on_score = [&] { first.checkpointer->request_stop("a test"); };
  const TrainerResult cut = first.run(6);
  EXPECT_EQ(cut.exit_code, 75);
  EXPECT_EQ(cut.step, 4) << "the evaluation after the first epoch";
  EXPECT_EQ(first.scored, 4) << "one batch, then the stop is seen";
  EXPECT_TRUE(first.recorder.evaluations.empty());

  Life second(directory());
  const TrainerResult result = second.run(6);
  ASSERT_EQ(second.recorder.evaluations.size(), 2U);
  EXPECT_EQ(second.recorder.evaluations.front().step, 4);
  EXPECT_EQ(to_line(result), to_line(expected));
}

TEST_F(TrainerTest, ACompleteRunSaysItsResultAgain) {
  const TrainerResult first = Life(directory()).run(5);
  Life again(directory());
  EXPECT_EQ(to_line(again.run(5)), to_line(first));
  EXPECT_TRUE(again.recorder.steps.empty());
  Life shorter(directory());
  EXPECT_EQ(shorter.run(2).step, 5) << "the final step is free, but nothing is untrained";
}

TEST_F(TrainerTest, AStopBeforeTheFirstStepCommitsNothing) {
  Life life(directory());
  life.checkpointer->request_stop("SIGTERM from process 12");
  const TrainerResult result = life.run(5);
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_TRUE(life.recorder.steps.empty());
  EXPECT_EQ(to_line(result), "interrupted step=0 state=" + result.state + " checkpoint=none reason=SIGTERM");
}

TEST_F(TrainerTest, PartsThatTheUserKeepsInEvaluationModeStaySo) {
  Life life(directory());
  life.net->ptr(1)->eval();
  life.run(4);
  EXPECT_TRUE(life.net->is_training());
  EXPECT_FALSE(life.net->ptr(1)->is_training());
  EXPECT_TRUE(life.net->ptr(2)->is_training());
}

TEST_F(TrainerTest, RefusesWrongParts) {
  Life life(directory());
  EXPECT_THROW(Trainer(life.parts(), {.steps = 0}), UsageError);
  TrainerParts half = life.parts();
  half.score = nullptr;
  EXPECT_THROW(Trainer(half, {.steps = 1}), UsageError);
  life.test_data = Loader(Numbers{10}, {.batch_size = 4, .workers = 0});
  EXPECT_THROW(Trainer(life.parts(), {.steps = 1}), UsageError) << "an evaluation would never end";
}

TEST_F(TrainerTest, AnEpochThatEndsWithinAnUpdateIsRefused) {
  Life life(directory(), 4);
  life.data = Loader(Numbers{30}, {.batch_size = 4, .drop_last = false, .accumulation = 4, .workers = 0});
  EXPECT_THROW(Trainer(life.parts(), {.steps = 9}), UsageError) << "eight batches, the last one short";
  life.data = Loader(Numbers{36}, {.batch_size = 4, .drop_last = false, .accumulation = 4, .workers = 0});
  EXPECT_THROW(Trainer(life.parts(), {.steps = 3}), UsageError);
  EXPECT_NO_THROW(Trainer(life.parts(), {.steps = 2})) << "it ends before that update";
}

TEST(TrainerResultTest, TheLineHasOnlyWhatIsKnown) {
  TrainerResult result;
  EXPECT_EQ(to_line(result), "") << "a failed run has no result";
  result = {.outcome = TrainerResult::Outcome::complete,
            .step = 390,
            .epochs = 1,
            .loss = 0.1,
            .test_accuracy = 0.5,
            .state = "00ff",
            .checkpoint = {},
            .reason = {}};
  EXPECT_EQ(to_line(result), "complete step=390 epoch=1 loss=0.1 test_accuracy=0.5 state=00ff");
  result.test_accuracy.reset();
  EXPECT_EQ(to_line(result), "complete step=390 epoch=1 loss=0.1 test_accuracy=none state=00ff");
}

}}  // namespace holdfast
