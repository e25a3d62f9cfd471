// What a ShardedOptimizer and synchronized batch norms refuse, and how elements are dealt out: no second
// process is needed. tests/dist has the rest.
#include "holdfast/distributed/sharded_optimizer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <memory>

#include "holdfast/distributed/internal/slices.h"
#include "holdfast/distributed/process_group.h"
#include "holdfast/distributed/sync_batch_norm.h"
#include "holdfast/optim/lamb.h"
#include "holdfast/state/train_state.h"
#include "unit/state/staging.h"

namespace holdfast { namespace {

using test::message_of;
using testing::HasSubstr;

struct TwoLayers : torch::nn::Module {
  TwoLayers() {
    torch::manual_seed(3);
    one = register_module("one", torch::nn::Linear(3, 4));
    two = register_module("two", torch::nn::Linear(4, 2));
  }
  void backward() { two->forward(one->forward(at::ones({5, 3}))).square().mean().backward(); }
  torch::nn::Linear one{nullptr}, two{nullptr};
};

// Every element is somebody's, once, whatever the limit and the number of ranks.
TEST(Slices, DealOutEveryElementOnce) {
  std::vector<at::Tensor> parameters;
  std::int64_t all = 0;
  for (const std::int64_t size : {1, 7, 64, 3, 100}) {
    parameters.push_back(at::arange(all, all + size, at::kFloat));
    all += size;
  }
  parameters.push_back(at::arange(all, all + 5, at::kDouble));
  all += 5;
  for (const int ranks : {1, 2, 3, 8}) {
    for (const std::int64_t bytes : {1, 40, 1000000}) {
      std::vector<int> seen(static_cast<std::size_t>(all), 0);
      for (const Chunk& chunk : cut(parameters, bytes, ranks)) {
        for (int rank = 0; rank < ranks; ++rank) {
          for (const Piece& piece : within_part(chunk.pieces, rank * chunk.share, (rank + 1) * chunk.share)) {
            EXPECT_LE(piece.at + piece.count, chunk.share);
            const at::Tensor& whole = parameters[piece.parameter];
            EXPECT_EQ(whole.dtype(), chunk.options.dtype());
            const at::Tensor own = whole.narrow(0, piece.from, piece.count);
            for (std::int64_t i = 0; i < own.numel(); ++i)
              ++seen[static_cast<std::size_t>(own[i].item<std::int64_t>())];
          }
        }
      }
      EXPECT_THAT(seen, testing::Each(1)) << ranks << " ranks, " << bytes << " bytes";
    }
  }
}

TEST(ShardedOptimizer, SaysWhatItCannotShare) {
  ProcessGroup group({.place = {}});
  TwoLayers net, other;
  torch::optim::RMSprop unknown(net.parameters());
  EXPECT_THAT(message_of<UsageError>([&] { ShardedOptimizer(unknown, net, group); }),
              HasSubstr("takes SGD, Adam or AdamW, torch::optim's or this library's, or Lamb"));
  torch::optim::Adam used(net.parameters());
  net.backward();
  used.step();
  EXPECT_THAT(message_of<UsageError>([&] { ShardedOptimizer(used, net, group); }),
              HasSubstr("before its first update"));
  torch::optim::SGD foreign(other.parameters(), 0.1);
  EXPECT_THAT(message_of<UsageError>([&] { ShardedOptimizer(foreign, net, group); }),
              HasSubstr("belongs to no part of its module"));
  EXPECT_EQ(foreign.param_groups()[0].params().size(), 4U) << "changed by a ShardedOptimizer that never was";
  torch::optim::SGD twice({net.one->weight, net.two->weight, net.one->weight}, 0.1);
  EXPECT_THAT(message_of<UsageError>([&] { ShardedOptimizer(twice, net, group); }),
              HasSubstr("parameter one.weight is listed twice"));
  torch::optim::SGD inner(net.parameters(), 0.1);
  ShardedOptimizer optimizer(inner, net, group);
  net.two->bias.mutable_grad().reset();
  EXPECT_THAT(message_of<UsageError>([&] { optimizer.step(); }),
              HasSubstr("parameter two.bias has no gradient in this update"));
}

TEST(ShardedOptimizer, NamesAParameterThatHasThawedSinceItWasMade) {
  ProcessGroup group({.place = {}});
  TwoLayers net;
  const auto made = [&] { return std::make_unique<torch::optim::SGD>(net.parameters(), 0.1); };
  const auto inner = made();
  net.one->bias.set_requires_grad(false);
  ShardedOptimizer optimizer(*inner, net, group);
  net.backward();
  optimizer.step();
  TrainState thawed;
  net.one->bias.set_requires_grad(true);
  thawed.add("model", net);
  const auto checkpoint = test::stage(thawed);
  for (const bool by_resume : {false, true}) {
    net.one->bias.set_requires_grad(!by_resume);
    if (by_resume) {
      TrainState state;
      state.add("model", net);
      state.load(*checkpoint, {});
    }
    net.backward();
    EXPECT_THAT(message_of<UsageError>([&] { optimizer.step(); }),
                HasSubstr("parameter one.bias takes a gradient now, and was frozen when the ShardedOptimizer "
                          "was made"));
  }
  const auto another = made();
  ShardedOptimizer anew(*another, net, group);
  anew.step();
}

TEST(ShardedOptimizer, RefusesACheckpointThatDoesNotFit) {
  ProcessGroup group({.place = {}});
  const auto kept = [&](torch::optim::AdamOptions options, bool train) {
    TwoLayers net;
    torch::optim::Adam inner(net.parameters(), options);
    ShardedOptimizer optimizer(inner, net, group);
    TrainState state;
    state.add("model", net);
    state.add("optimizer", optimizer);
    net.backward();
    if (train) optimizer.step();
    return test::stage(state);
  };
  const auto trained = kept(torch::optim::AdamOptions(0.1), true);
  EXPECT_TRUE(test::holds(*trained, "optimizer/exp_avg/one.weight"));
  EXPECT_FALSE(test::holds(*kept(torch::optim::AdamOptions(0.1), false), "optimizer/exp_avg/one.weight"));

  TwoLayers net;
  torch::optim::Adam inner(net.parameters(), torch::optim::AdamOptions(0.2));
  ShardedOptimizer optimizer(inner, net, group);
  TrainState state;
  state.add("model", net);
  state.add("optimizer", optimizer);
  EXPECT_THAT(message_of<RefusedError>([&] { state.load(*trained, {}); }),
              HasSubstr("optimizer.group.0.lr is 0.2 here and 0.1 in the checkpoint"));
  state.load(*trained, {.overrides = {"lr"}});
  EXPECT_EQ(inner.param_groups()[0].options().get_lr(), 0.2);
  EXPECT_EQ(optimizer.slot_bytes(), 2 * 26 * 4);

  TwoLayers same;
  torch::optim::SGD sgd(same.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  ShardedOptimizer others(sgd, same, group);
  TrainState another;
  another.add("model", same);
  another.add("optimizer", others);
  EXPECT_THAT(message_of<RefusedError>([&] {
                another.load(*trained, {.overrides = {"lr", "momentum", "dampening", "nesterov", "betas",
                                                      "eps", "amsgrad", "weight_decay"}});
              }),
              HasSubstr("the optimizer is SGD here and Adam in the checkpoint"));
}

// A schedule's rate is state: a run goes on with it, not with the one that was chosen.
TEST(ShardedOptimizer, GoesOnWithTheRateOfTheSchedule) {
  ProcessGroup group({.place = {}});
  const auto rate_after = [&](const Snapshot* snapshot, std::shared_ptr<Snapshot>* out) {
    TwoLayers net;
    torch::optim::SGD inner(net.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    ShardedOptimizer optimizer(inner, net, group);
    TrainState state;
    state.add("model", net);
    state.add("optimizer", optimizer);
    if (snapshot != nullptr) state.load(*snapshot, {});
    if (out != nullptr) {
      inner.param_groups()[0].options().set_lr(0.025);
      *out = test::stage(state);
    }
    return inner.param_groups()[0].options().get_lr();
  };
  std::shared_ptr<Snapshot> kept;
  rate_after(nullptr, &kept);
  EXPECT_EQ(rate_after(kept.get(), nullptr), 0.025);
}

TEST(SyncBatchNorm, AnOrdinaryOneIsNamedAndAWorldOfOneIsAnOrdinaryOne) {
  ProcessGroup group({.place = {}});
  struct Norms : torch::nn::Module {
    Norms() { register_module("good", good); }
    SyncBatchNorm2d good{3};
  } net;
  EXPECT_EQ(synchronize_batch_norms(net, group), 1U);
  torch::nn::BatchNorm2d plain(3);
  const at::Tensor x = at::randn({2, 3, 4, 4});
  EXPECT_TRUE(net.good->forward(x).equal(plain->forward(x)));
  EXPECT_TRUE(net.good->running_var.equal(plain->running_var));
  net.register_module("forgotten", plain);
  EXPECT_THAT(message_of<UsageError>([&] { synchronize_batch_norms(net, group); }),
              HasSubstr("'forgotten' is an ordinary batch norm"));
}

// A weight of 100,000 elements in chunks of 40,000: the last share is short enough for another list of kernels.
TEST(ShardedOptimizer, LambsNormsAreThoseOfWholeTensorsHoweverTheyAreCut) {
  ProcessGroup group({.place = {}});
  const auto weight_after = [&](std::int64_t chunk_bytes) {
    torch::manual_seed(5);
    torch::nn::Linear net(250, 400);
    Lamb lamb(net->parameters(), LambOptions(0.1).weight_decay(0.01));
    ShardedOptimizer optimizer(lamb, *net, group, {.chunk_bytes = chunk_bytes});
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      net->forward(at::ones({5, 250})).square().mean().backward();
      optimizer.step();
    }
    return net->weight.detach().clone();
  };
  const at::Tensor whole = weight_after(std::int64_t{1} << 20);
  const at::Tensor cut = weight_after(160'000);
  EXPECT_LT((whole - cut).abs().max().item<float>(), 1e-6);
}

// A copy made between would wait for ranks that do not come.
TEST(Sharded, AStateWithOneNeedsTheOthersAtEachBoundaryUntilItWasBroughtTogether) {
  ProcessGroup group;
  TwoLayers net;
  torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  ShardedOptimizer sharded(sgd, net, group);
  TrainState whole;
  whole.add("model", net);
  EXPECT_FALSE(whole.traits().needs_others);
  TrainState state;
  state.add("model", net);
  state.add("optimizer", sharded);
  for (int step = 0; step < 2; ++step) {
    net.backward();
    sharded.step();
    state.advance({});
    EXPECT_TRUE(state.traits().needs_others);
    state.bring_together();
    EXPECT_FALSE(state.traits().needs_others);
  }
}

}}  // namespace holdfast
