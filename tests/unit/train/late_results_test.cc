// A trainer that learns results one step late: bits, rates, skips, averages and checkpoints of one that waits
// at each step, over runs that break off and resume. And a step that reads nothing from its tensors.
#include "holdfast/train/late_results.h"

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/ledger/loss_ring.h"
#include "holdfast/optim/ema.h"
#include "holdfast/optim/fused_sgd.h"
#include "holdfast/precision/grad_scaler.h"
#include "holdfast/train/trainer.h"
#include "support/ledger_lines.h"
#include "support/operator_counts.h"
#include "support/subprocess.h"

namespace holdfast::late_results { namespace {

struct Numbers {
  struct Sample {
    at::Tensor x;
    at::Tensor y;
  };
  std::int64_t size() const { return 48; }
  Sample get(std::int64_t index) const {
    const at::Tensor x = torch::full({2}, static_cast<float>(index % 7) / 7);
    return {x, x.sum(0, true)};
  }
};

class LateEnvironment {
 public:
  explicit LateEnvironment(bool late) { ::setenv("HOLDFAST_LATE_RESULTS", late ? "1" : "0", 1); }
  ~LateEnvironment() { ::unsetenv("HOLDFAST_LATE_RESULTS"); }
};

using Told = std::tuple<double, double, bool, std::int64_t>;  // loss, rate, skipped, samples

struct Sink final : MetricSink {
  void step(const StepEvent& event) override {
    steps.insert_or_assign(event.step, Told(event.loss, event.learning_rate, event.skipped, event.samples));
    order.push_back(event.step);
    if (on_step) on_step(event.step);
  }
  void evaluation(const EvaluationEvent& event) override { evaluations.push_back(event.step); }
  std::map<std::int64_t, Told> steps;
  std::vector<std::int64_t> order, evaluations;
  std::function<void(std::int64_t step)> on_step;
};

// Thrown to end a life like a crash.
struct Crash : std::runtime_error {
  Crash() : std::runtime_error("the machine is gone") {}
};

constexpr bool overflows(std::int64_t step) { return step == 3 || step == 4 || step == 10 || step == 17; }

// 6 updates of 2 micro-batches an epoch, in FP16's way: dropout, a scaler that overflows, a rate that counts
// the updates that were made, an average of the weights.
struct Life {
  explicit Life(const std::filesystem::path& directory)
      : data((torch::manual_seed(3), Numbers{}),
             {.batch_size = 4, .seed = 5, .accumulation = 2, .workers = 0}),
        test_data(Numbers{}, {.batch_size = 16, .epochs = 1, .shuffle = false, .workers = 0}),
        net(torch::nn::Linear(2, 4), torch::nn::Dropout(0.5), torch::nn::Linear(4, 1)),
        optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)),
        scaler(at::kCPU, {.init_scale = 1024, .growth_interval = 3}),
        ema(*net),
        step(optimizer,
             [this](const Batch& batch) {
               const std::int64_t now = state.step() + 1;
               if (now == crash_in) throw Crash();
               const at::Tensor loss =
                   torch::nn::functional::mse_loss(net->forward(batch.inputs), batch.targets);
               return overflows(now) ? loss * std::numeric_limits<float>::infinity() : loss;
             },
             {.clip_grad_norm = 10, .accumulation = 2, .scaler = &scaler}) {
    state.add("model", *net);
    state.add("optimizer", optimizer);
    state.add("data", data);
    state.add("scaler", scaler);
    state.add("ema", ema);
    checkpointer =
        std::make_unique<Checkpointer>(state, CheckpointerOptions{.directory = directory,
                                                                  .every = {SaveEvery::steps(4)},
                                                                  .keep = KeepLast{100},
                                                                  .notices = {.hear_signals = false}});
  }
  TrainerResult run(Sink& sink) {
    TrainerParts parts{.state = state,
                       .checkpointer = *checkpointer,
                       .model = *net,
                       .data = data,
                       .step = step,
                       .learning_rate =
                           [this](std::int64_t applied) {
                             const double rate = 0.1 / static_cast<double>(applied + 1);
                             optimizer.param_groups()[0].options().set_lr(rate);
                             return rate;
                           },
                       .average = average_by_hand ? nullptr : &ema,
                       .test_data = &test_data,
                       .score = [](const Batch&) { return Score{.correct = 1, .loss_sum = 2}; },
                       .sinks = {&sink}};
    if (average_by_hand) parts.applied = [this] { ema.update(); };
    Trainer trainer(std::move(parts), {.steps = 20});
    trainer.run();
    return trainer.result();
  }

  std::int64_t crash_in = 0;
  bool average_by_hand = false;
  TrainState state;
  Loader data;
  Loader test_data;
  torch::nn::Sequential net;
  FusedSgd optimizer;
  GradScaler scaler;
  Ema ema;
  Step step;
  std::unique_ptr<Checkpointer> checkpointer;
};

class LateResultsTest : public ::testing::Test {
 protected:
  LateResultsTest() { set_log_level(LogLevel::error); }
  ~LateResultsTest() override { set_log_level(LogLevel::info); }
  std::filesystem::path directory(const std::string& name) { return folder_.path() / name; }
  test::TemporaryFolder folder_;
};

TEST_F(LateResultsTest, RunsThatBreakOffEndAsTheStraightRunThatWaits) {
  Sink expected;
  std::optional<LateEnvironment> at_once(false);
  Life straight(directory("straight"));
  const std::string last_line = to_line(straight.run(expected));
  at_once.reset();
  EXPECT_EQ(straight.state.skipped(), 4);
  EXPECT_EQ(straight.ema.updates(), 16);

  for (const bool by_hand : {false, true}) {
    for (const std::int64_t first : {2, 3, 4, 5, 6, 7}) {
      const auto run = directory(std::to_string(first) + (by_hand ? "a" : "b"));
      Sink sink;
      int life = 0;
      for (const std::int64_t crash_in : {first, first + 5, first + 8, first + 13, std::int64_t{0}}) {
        // Lives that wait and lives that do not take turns.
        const LateEnvironment late(life++ % 3 != 2);
        Life now(run);
        now.crash_in = crash_in;
        now.average_by_hand = by_hand;
        if (crash_in > 0) {
          EXPECT_THROW(now.run(sink), Crash);
          continue;
        }
        EXPECT_EQ(to_line(now.run(sink)), last_line) << first;
        EXPECT_EQ(now.state.skipped(), 4);
        EXPECT_EQ(now.ema.updates(), 16);
      }
      EXPECT_EQ(sink.steps, expected.steps) << first;
    }
  }
}

TEST_F(LateResultsTest, SinksHearEveryStepOnceAndBeforeItsCheckpointExists) {
  const LateEnvironment late(true);
  Life life(directory("run"));
  Sink sink;
  std::vector<std::int64_t> told_late;
  sink.on_step = [&](std::int64_t step) {
    if (life.state.step() == step) told_late.push_back(step);
    const std::filesystem::path file =
        directory("run") /
        ("step-0000000000" + std::string(step < 10 ? "0" : "") + std::to_string(step) + "-a0001.h5");
    EXPECT_FALSE(std::filesystem::exists(file)) << step;
  };
  EXPECT_EQ(life.run(sink).exit_code, 0);
  ASSERT_EQ(sink.order.size(), 20U);
  for (std::size_t i = 0; i < sink.order.size(); ++i) {
    EXPECT_EQ(sink.order[i], static_cast<std::int64_t>(i) + 1);
  }
  EXPECT_EQ(sink.evaluations, (std::vector<std::int64_t>{6, 12, 18, 20}));
  // All of them: within after_step() where a save needs it, else before the next update.
  for (const std::int64_t evaluated : sink.evaluations) {
    EXPECT_EQ(std::count(told_late.begin(), told_late.end(), evaluated), 0) << "known at once";
  }
  EXPECT_EQ(told_late.size(), 16U);
  // The ledger has the bits of every loss that is a number.
  const auto losses = losses_in(test::ledger_lines(FileSystem::real(), directory("run"), 1));
  for (const auto& [step, told] : sink.steps) {
    const double loss = std::get<0>(told);
    if (std::isnan(loss)) continue;
    EXPECT_EQ(losses.at(step), loss) << step;
  }
}

TEST_F(LateResultsTest, AStopIsHeardAtItsStepAndCommitsIt) {
  Sink expected, sink;
  std::string last_line;
  {
    const LateEnvironment at_once(false);
    Life straight(directory("straight"));
    last_line = to_line(straight.run(expected));
  }
  const LateEnvironment late(true);
  for (int lives = 0; lives < 30; ++lives) {
    Life life(directory("run"));
    const std::int64_t begins_at = sink.order.empty() ? 0 : sink.order.back();
    sink.on_step = [&](std::int64_t step) {
      if (step == begins_at + 2) life.checkpointer->request_stop("a test");
    };
    const TrainerResult result = life.run(sink);
    EXPECT_EQ(result.step, sink.order.back()) << "the last step was told before the end";
    if (result.exit_code == 75) {
      EXPECT_NE(result.checkpoint, "");
      continue;
    }
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(to_line(result), last_line);
    EXPECT_EQ(sink.order.size(), 20U) << "nothing was computed twice";
    EXPECT_EQ(sink.steps, expected.steps);
    return;
  }
  FAIL() << "the run never ends";
}

// A crash inside the trainer leaves a Checkpointer that may still be asked to finish.
TEST_F(LateResultsTest, ACheckpointerOutlivesTheTrainerWithItsResult) {
  const LateEnvironment late(true);
  Life life(directory("run"));
  life.crash_in = 3;  // in the forward pass after step 2, whose result nobody has asked for
  Sink sink;
  EXPECT_THROW(life.run(sink), Crash);
  EXPECT_EQ(life.checkpointer->finish(), 0);
  Life next(directory("run"));
  EXPECT_EQ(next.checkpointer->resume().step, 2);
  EXPECT_EQ(next.state.skipped(), 0);
}

TEST_F(LateResultsTest, ASkipIsCountedInTheCheckpointOfItsStep) {
  const LateEnvironment late(true);
  Life life(directory("run"));
  life.crash_in = 4;
  Sink sink;
  EXPECT_THROW(life.run(sink), Crash);
  EXPECT_EQ(life.checkpointer->finish(), 0);
  Life next(directory("run"));
  EXPECT_EQ(next.checkpointer->resume().step, 3);
  EXPECT_EQ(next.state.skipped(), 1) << "step 3 overflowed, and its result came late";
}

Batch batch_of(float value) {
  Batch batch;
  batch.inputs = torch::full({4, 3}, value);
  batch.targets = torch::zeros({4, 1});
  batch.completes_update = true;
  return batch;
}

TEST(LateStep, LaunchesReadNothingAndGiveTheNumbersOfRun) {
  const auto make = [](auto&& body) {
    torch::manual_seed(7);
    torch::nn::Linear net(3, 1);
    FusedSgd optimizer(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
    GradScaler scaler(at::kCPU, {.init_scale = 1024});
    Step step(optimizer,
              [&](const Batch& batch) {
                return torch::nn::functional::mse_loss(net->forward(batch.inputs), batch.targets);
              },
              {.clip_grad_norm = 1, .scaler = &scaler});
    body(step, optimizer);
  };
  const std::vector<float> values{1, 2, std::numeric_limits<float>::infinity(), -1, 0.5F};
  std::vector<StepResult> expected;
  make([&](Step& step, FusedSgd&) {
    for (const float value : values) expected.push_back(step.run(batch_of(value)).value());
  });
  EXPECT_TRUE(expected[2].skipped);
  std::vector<StepResult> late;
  std::int64_t reads = -1;
  make([&](Step& step, FusedSgd&) {
    const test::OperatorCounts counts;
    for (const float value : values) {
      const bool any = value != values.front() || !late.empty();
      step.launch(batch_of(value), [&] {
        if (any) late.push_back(step.result());
      });
    }
    late.push_back(step.result());
    reads = counts.reads();
  });
  // On a CPU the fused optimizer looks at found_inf itself, at most once an update; on a device its kernel
  // does.
  EXPECT_LE(reads, static_cast<std::int64_t>(values.size()));
  ASSERT_EQ(late.size(), expected.size());
  for (std::size_t i = 0; i < late.size(); ++i) {
    EXPECT_EQ(late[i].update, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(late[i].update, expected[i].update);
    EXPECT_EQ(late[i].skipped, expected[i].skipped);
    if (late[i].skipped) continue;
    EXPECT_EQ(late[i].loss, expected[i].loss);
    EXPECT_EQ(late[i].grad_norm, expected[i].grad_norm);
  }
}

TEST(LateStep, WithoutChecksOfTheGradientNothingIsReadAtAll) {
  torch::nn::Linear net(3, 1);
  FusedSgd optimizer(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  Step step(optimizer, [&](const Batch& batch) {
    return torch::nn::functional::mse_loss(net->forward(batch.inputs), batch.targets);
  });
  const test::OperatorCounts counts;
  for (int i = 0; i < 5; ++i)
    step.launch(batch_of(1), [&] { EXPECT_TRUE(i == 0 || step.result().loss > 0); });
  EXPECT_EQ(counts.reads(), 0);
}

TEST(LateNumbers, AreExactForEveryType) {
  LateResults results;
  const std::vector<at::ScalarType> types{at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};
  std::vector<at::Tensor> scalars;
  for (const at::ScalarType type : types) scalars.push_back(at::full({}, 0.1, type));
  results.begin(scalars);
  for (at::Tensor& scalar : scalars) scalar.fill_(7);  // may be overwritten at once
  const std::vector<double> numbers = results.wait();
  ASSERT_EQ(numbers.size(), types.size());
  for (std::size_t i = 0; i < types.size(); ++i) {
    EXPECT_EQ(numbers[i], at::full({}, 0.1, types[i]).item().toDouble());
  }
  EXPECT_EQ(results.wait(), numbers) << "again";
}

}}  // namespace holdfast::late_results
