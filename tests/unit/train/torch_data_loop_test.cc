// A user's own program with torch::data's DataLoader: a loop over epochs, a loop over the loader's batches,
// stopped after every step it has. However it is cut into lives, it takes the same batches as in one go.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>
#include <torch/data/datasets/map.h>
#include <torch/data/transforms/stack.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <filesystem>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/data/torch_sampler.h"
#include "holdfast/snapshot/digest.h"
#include "holdfast/state/train_state.h"
#include "support/subprocess.h"

namespace holdfast { namespace {

struct Indices : torch::data::datasets::Dataset<Indices> {
  explicit Indices(std::size_t of) : count(of) {}
  torch::data::Example<> get(std::size_t index) override {
    const at::Tensor value = at::tensor({static_cast<float>(index)});
    return {value, value};
  }
  std::optional<std::size_t> size() const override { return count; }
  std::size_t count;
};

// What a loop does after a pass over the data, such as a step of a schedule that counts epochs.
struct Passes {
  std::int64_t count = 0;
  void save(StateWriter& out) const { out.put("count", count); }
  void load(const StateReader& in) { count = in.get_int("count"); }
};

struct DataLoop {
  std::size_t size = 24;
  std::int64_t batch = 4;
  std::size_t workers = 0;
  bool drop_last = true;
  std::int64_t epochs = 3;
  EpochOrderOptions order = {};
};

using Batches = std::vector<std::vector<std::int64_t>>;

struct Ending {
  int exit_code = -1;
  double rate = 0;
  std::int64_t step = 0;
  std::int64_t passes = 0;
  std::string state;
  Resumed resumed;
};

std::size_t files_in(const std::filesystem::path& directory) {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".h5") ++files;
  }
  return files;
}

std::size_t attempts_in(const std::filesystem::path& directory) {
  const auto folder = std::filesystem::directory_iterator(directory / "attempts");
  return static_cast<std::size_t>(std::distance(begin(folder), end(folder)));
}

class TorchDataLoop : public ::testing::Test {
 protected:
  void SetUp() override { set_log_level(LogLevel::error); }
  void TearDown() override { set_log_level(LogLevel::info); }

  // The program. `stop`: told to stop at that step, 0 never.
  Ending live(const std::filesystem::path& directory, const DataLoop& loop, std::int64_t stop, Batches& seen,
              const Overrides& overrides = {}) {
    torch::manual_seed(3);
    torch::nn::Linear net(1, 1);
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(1e-4));
    EpochOrder order(loop.size, 8, loop.order);
    Passes passes;
    TrainState state;
    state.add("model", *net);
    state.add("optimizer", optimizer);
    state.add("data", order);
    state.add("passes", passes);
    Checkpointer checkpointer(state, {.directory = directory,
                                      .every = {},
                                      .start = {.overrides = overrides},
                                      .notices = {.hear_signals = false}});
    Ending ending;
    ending.resumed = checkpointer.resume();
    auto loader = torch::data::make_data_loader(
        Indices(loop.size).map(torch::data::transforms::Stack<>()), TorchSampler(order),
        torch::data::DataLoaderOptions(static_cast<std::size_t>(loop.batch))
            .workers(loop.workers)
            .drop_last(loop.drop_last));
    bool stopped = false;
    const auto pass = [&] {
      for (auto& batch : *loader) {
        const at::Tensor flat = batch.data.reshape({-1}).to(at::kLong);
        seen.emplace_back(flat.data_ptr<std::int64_t>(), flat.data_ptr<std::int64_t>() + flat.numel());
        optimizer.zero_grad();
        torch::nn::functional::mse_loss(net->forward(batch.data), batch.target).backward();
        optimizer.step();
        if (state.step() + 1 == stop) checkpointer.request_stop("told to");
        stopped = checkpointer.after_step({.applied = order.after(flat.numel())}).stop;
        if (stopped) break;
      }
    };
    if (leaves_only_the_pass_) {
      for ([[maybe_unused]] const std::int64_t epoch : order.epochs(loop.epochs)) {
        pass();
        ++passes.count;
        auto& options = optimizer.param_groups()[0].options();
        options.set_lr(options.get_lr() / 2);
      }
    } else {
      for (auto epoch = first_epoch_(state, order); epoch < loop.epochs; ++epoch) {
        pass();
        if (stopped && !passes_on_) break;
        if (!stopped) ++passes.count;
      }
    }
    if (works_before_finish_) {
      const at::NoGradGuard no_grad;
      net->weight.fill_(5);  // as a program that loads its best weights
    }
    ending.rate = optimizer.param_groups()[0].options().get_lr();
    ending.exit_code = checkpointer.finish();
    ending.state = to_hex(checkpointer.state_digest());
    ending.step = state.step();
    ending.passes = passes.count;
    return ending;
  }

  void comes_to_the_same_batches_after_every_stop(const DataLoop& loop) {
    Batches expected;
    const Ending straight = live(directory(), loop, 0, expected);
    ASSERT_EQ(straight.exit_code, 0);
    ASSERT_EQ(straight.passes, loop.epochs);
    const auto steps = static_cast<std::int64_t>(expected.size());
    ASSERT_EQ(straight.step, steps);
    for (std::int64_t stop = 1; stop <= steps; ++stop) {
      SCOPED_TRACE("stopped at step " + std::to_string(stop));
      const auto run = directory();
      Batches seen;
      EXPECT_EQ(live(run, loop, stop, seen).exit_code, 75);
      const Ending second = live(run, loop, 0, seen);
      EXPECT_EQ(second.exit_code, 0);
      EXPECT_EQ(second.step, steps);
      EXPECT_EQ(second.passes, loop.epochs);
      EXPECT_EQ(seen, expected);
      std::filesystem::remove_all(run);
    }
  }

  std::filesystem::path directory() { return folder_.path() / std::to_string(++runs_); }

  // Where the program's loop over epochs begins.
  std::function<std::int64_t(const TrainState&, const EpochOrder&)> first_epoch_ =
      [](const TrainState& /*state*/, const EpochOrder& order) { return order.epoch(); };
  bool leaves_only_the_pass_ = false;  // of a loop over order.epochs()
  bool works_before_finish_ = false;
  bool passes_on_ = false;  // a loop of its own, too, leaves only the pass

 private:
  test::TemporaryFolder folder_;
  int runs_ = 0;
};

TEST_F(TorchDataLoop, TakesTheSameBatchesWhereverItIsStoppedWhenBatchesDivideTheData) {
  comes_to_the_same_batches_after_every_stop({.size = 12});
}

TEST_F(TorchDataLoop, TakesTheSameBatchesWhereverItIsStoppedWhenARestIsDropped) {
  comes_to_the_same_batches_after_every_stop({.size = 14, .workers = 2});
}

TEST_F(TorchDataLoop, TakesTheSameBatchesWhereverItIsStoppedWhenARestIsASmallerBatch) {
  comes_to_the_same_batches_after_every_stop({.size = 10, .workers = 2, .drop_last = false});
}

// What the loop does after the pass that was broken off is not in the checkpoint, and is done by the next life.
TEST_F(TorchDataLoop, MayLeaveOnlyTheLoopOverTheBatches) {
  leaves_only_the_pass_ = true;
  comes_to_the_same_batches_after_every_stop({.size = 12, .workers = 2});
  comes_to_the_same_batches_after_every_stop({.size = 10, .drop_last = false});
  leaves_only_the_pass_ = false;
  passes_on_ = true;
  comes_to_the_same_batches_after_every_stop({.size = 12});
}

TEST_F(TorchDataLoop, MayCountItsEpochsByTheCursor) {
  first_epoch_ = [](const TrainState& /*state*/, const EpochOrder& order) { return order.cursor().epoch; };
  comes_to_the_same_batches_after_every_stop({.size = 12, .epochs = 2});
  first_epoch_ = [](const TrainState& state, const EpochOrder& /*order*/) { return state.cursor().epoch; };
  comes_to_the_same_batches_after_every_stop({.size = 12, .epochs = 2});
}

TEST_F(TorchDataLoop, TakesTheSameBatchesInTheDataSetsOwnOrder) {
  const DataLoop loop{.size = 12, .epochs = 2, .order = {.shuffle = false}};
  comes_to_the_same_batches_after_every_stop(loop);
  const auto run = directory();
  Batches seen;
  live(run, loop, 4, seen);
  EXPECT_EQ(seen, (Batches{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {0, 1, 2, 3}}));
  EXPECT_THROW(live(run, {.size = 12, .epochs = 2}, 0, seen), RefusedError);
}

TEST_F(TorchDataLoop, ACompleteRunThatIsStartedAgainTakesNoStepAndWritesNothing) {
  for (const std::size_t size : {12, 14}) {
    const DataLoop loop{.size = size};
    const auto run = directory();
    Batches first, again;
    const Ending complete = live(run, loop, 0, first);
    EXPECT_EQ(complete.exit_code, 0);
    const std::size_t files = files_in(run);
    for (int i = 0; i < 2; ++i) {
      const Ending rerun = live(run, loop, 0, again);
      EXPECT_EQ(rerun.exit_code, 0);
      EXPECT_EQ(rerun.step, complete.step);
      EXPECT_TRUE(again.empty()) << again.size() << " batches";
      EXPECT_EQ(files_in(run), files);
    }
    // More epochs than it had are a run that goes on.
    Batches longer, in_one_go;
    EXPECT_EQ(live(run, {.size = size, .epochs = 4}, 0, longer).exit_code, 0);
    live(directory(), {.size = size, .epochs = 4}, 0, in_one_go);
    first.insert(first.end(), longer.begin(), longer.end());
    EXPECT_EQ(first, in_one_go);
  }
}

// What follows the last after_step() belongs to the next life, if there is one: a rate that is halved after each
// pass, and weights that were loaded at the end.
TEST_F(TorchDataLoop, ARunThatGetsMoreEpochsIsTheLongRun) {
  leaves_only_the_pass_ = true;
  works_before_finish_ = true;
  for (const DataLoop& loop :
       {DataLoop{.size = 12}, DataLoop{.size = 14, .workers = 2}, DataLoop{.size = 10, .drop_last = false}}) {
    SCOPED_TRACE(loop.size);
    Batches batches;
    DataLoop longer = loop;
    longer.epochs = 5;
    const Ending in_one_go = live(directory(), longer, 0, batches);
    const auto run = directory();
    EXPECT_EQ(live(run, loop, 0, batches).exit_code, 0);
    // Started again where it is complete, and told to stop at the last batch of an epoch.
    EXPECT_EQ(live(run, loop, 0, batches).exit_code, 0);
    EXPECT_EQ(live(run, longer, in_one_go.step / 5 * 4, batches).exit_code, 75);
    const Ending extended = live(run, longer, 0, batches);
    EXPECT_EQ(extended.step, in_one_go.step);
    EXPECT_EQ(extended.passes, in_one_go.passes);
    EXPECT_EQ(extended.rate, in_one_go.rate);
    EXPECT_EQ(extended.state, in_one_go.state);
  }
}

TEST_F(TorchDataLoop, AnotherBatchSizeOnResumeIsRefused) {
  const auto run = directory();
  Batches seen;
  ASSERT_EQ(live(run, {.size = 24}, 5, seen).exit_code, 75);
  const auto refused = [&](const DataLoop& loop) {
    try {
      live(run, loop, 0, seen);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::refused);
      EXPECT_NE(std::string(error.what()).find("batch_size"), std::string::npos) << error.what();
      return true;
    }
    return false;
  };
  // Nobody named it: the first batch tells, before a step is taken.
  EXPECT_TRUE(refused({.size = 24, .batch = 8}));
  // resume() knows what the program names.
  const std::size_t claims = attempts_in(run);
  EXPECT_TRUE(refused({.size = 24, .batch = 8, .order = {.batch_size = 8}}));
  EXPECT_EQ(attempts_in(run), claims);
  EXPECT_EQ(seen.size(), 5u);

  const Ending accepted =
      live(run, {.size = 24, .batch = 8, .order = {.batch_size = 8}}, 0, seen, {"batch_size"});
  EXPECT_EQ(accepted.exit_code, 0);
  EXPECT_FALSE(accepted.resumed.bit_exact);
  // 4 of the first epoch's 24 samples were left; one more epoch of three batches is complete.
  EXPECT_EQ(seen.size(), 5u + 3 + 3);
}

TEST_F(TorchDataLoop, ANamedBatchSizeIsTheDataLoaders) {
  Batches seen;
  EXPECT_THROW(live(directory(), {.order = {.batch_size = 3}}, 0, seen), UsageError);
  EXPECT_TRUE(seen.empty());
  comes_to_the_same_batches_after_every_stop({.size = 8, .epochs = 2, .order = {.batch_size = 4}});
}

// The loop as people write it, without a cursor. `per_batch` updates for each batch that `takes` accepts.
struct PlainLoop {
  std::size_t size = 12;
  std::size_t workers = 0;
  std::function<bool(std::int64_t)> takes = [](std::int64_t) { return true; };
  int per_batch = 1;
  std::int64_t stop = 0;
  bool drop_last = true;
};

int plain_loop(const std::filesystem::path& directory, const PlainLoop& loop, Batches& seen,
               std::vector<std::int64_t>* counters = nullptr) {
  EpochOrder order(loop.size, 8);
  TrainState state;
  state.add("data", order);
  Checkpointer checkpointer(state, {.directory = directory, .every = {}, .notices = {.hear_signals = false}});
  checkpointer.resume();
  auto loader = torch::data::make_data_loader(
      Indices(loop.size).map(torch::data::transforms::Stack<>()), TorchSampler(order),
      torch::data::DataLoaderOptions(4).workers(loop.workers).drop_last(loop.drop_last));
  std::int64_t delivered = 0;
  for (const std::int64_t epoch : order.epochs(3)) {
    for (auto& batch : *loader) {
      if (!loop.takes(delivered++)) continue;
      if (counters != nullptr) counters->insert(counters->end(), {epoch, order.batch()});
      const at::Tensor flat = batch.data.reshape({-1}).to(at::kLong);
      seen.emplace_back(flat.data_ptr<std::int64_t>(), flat.data_ptr<std::int64_t>() + flat.numel());
      for (int update = 0; update < loop.per_batch; ++update) {
        if (state.step() + 1 == loop.stop) checkpointer.request_stop("told to");
        if (checkpointer.after_step().stop) return checkpointer.finish();
      }
    }
  }
  return checkpointer.finish();
}

TEST_F(TorchDataLoop, CountsItsBatchesItself) {
  for (const PlainLoop& loop : {PlainLoop{}, PlainLoop{.size = 14, .workers = 2},
                                PlainLoop{.size = 10, .workers = 3, .drop_last = false}}) {
    Batches expected;
    std::vector<std::int64_t> counters;
    ASSERT_EQ(plain_loop(directory(), loop, expected, &counters), 0);
    ASSERT_EQ(expected.size(), 9u);
    EXPECT_EQ(counters, (std::vector<std::int64_t>{0, 0, 0, 1, 0, 2, 1, 0, 1, 1, 1, 2, 2, 0, 2, 1, 2, 2}));
    for (std::int64_t stop = 1; stop <= 9; ++stop) {
      SCOPED_TRACE("stopped at step " + std::to_string(stop));
      const auto run = directory();
      Batches seen;
      std::vector<std::int64_t> again;
      PlainLoop first = loop;
      first.stop = stop;
      EXPECT_EQ(plain_loop(run, first, seen, &again), 75);
      EXPECT_EQ(plain_loop(run, loop, seen, &again), 0);
      EXPECT_EQ(seen, expected);
      EXPECT_EQ(again, counters);
    }
  }
}

TEST_F(TorchDataLoop, ALoopWhoseUpdatesAreNotOneABatchIsAnError) {
  const auto message = [&](const PlainLoop& loop) -> std::string {
    Batches seen;
    try {
      plain_loop(directory(), loop, seen);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  for (const std::size_t workers : {0, 2}) {
    SCOPED_TRACE(std::to_string(workers) + " workers");
    // Two updates for a batch.
    EXPECT_NE(message({.workers = workers, .per_batch = 2}).find("delivered 0 since the last update"),
              std::string::npos);
    // `continue`: in the middle, as the last batch, as the first batch; and two batches an update.
    EXPECT_NE(message({.workers = workers, .takes = [](auto i) { return i != 1; }})
                  .find("delivered 2 since the last update"),
              std::string::npos);
    EXPECT_NE(
        message({.workers = workers, .takes = [](auto i) { return i != 2; }}).find("2 of its 3 batches"),
        std::string::npos);
    EXPECT_NE(
        message({.workers = workers, .takes = [](auto i) { return i != 0; }}).find("2 of its 3 batches"),
        std::string::npos);
    EXPECT_NE(
        message({.workers = workers, .takes = [](auto i) { return i % 2 == 1; }}).find("1 of its 3 batches"),
        std::string::npos);
  }
}

// `while (order.epoch() < 3)` counts as well as the for loop does.
TEST_F(TorchDataLoop, TheOrderSaysWhichEpochTheNextPassDelivers) {
  EpochOrder order(8, 8);
  TorchSampler sampler(order);
  std::int64_t passes = 0;
  while (order.epoch() < 3) {
    EXPECT_EQ(order.epoch(), passes);
    ++passes;
    sampler.reset();
    while (const auto batch = sampler.next(4)) order.applied(order.after(4));
  }
  EXPECT_EQ(passes, 3);
  EXPECT_EQ(order.cursor(), (Cursor{2, 8}));
}

}}  // namespace holdfast
