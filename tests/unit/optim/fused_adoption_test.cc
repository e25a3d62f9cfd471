// Whose slots they are: fused optimizers that adopt torch::optim's and give them back, and that go up.
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include "holdfast/base/error.h"
#include "holdfast/optim/fused_adam.h"
#include "holdfast/optim/fused_sgd.h"
#include "unit/optim/fused_cases.h"
#include "unit/state/staging.h"

namespace holdfast::test { namespace {

using ::testing::HasSubstr;

TEST(FusedSgd, AdoptsAndGivesBack) {
  Program one("torch-sgd"), other("torch-sgd");
  torch::manual_seed(5);
  one.train(6);
  torch::manual_seed(5);
  other.train(2);
  auto& torchs = static_cast<to::SGD&>(*other.optimizer);
  torchs.param_groups()[0].options().set_lr(0.07);
  {
    FusedSgd fused(torchs);
    EXPECT_TRUE(torchs.state().empty());
    EXPECT_EQ(fused.state().size(), 4U);
    EXPECT_EQ(fused.param_groups()[0].options().get_lr(), 0.07);
    fused.param_groups()[0].options().set_lr(0.05);
    for (int i = 0; i < 2; ++i) {
      fused.zero_grad();
      other.net->forward(at::randn({4, 6})).square().mean().backward();
      fused.step();
      other.state->advance({});
    }
    to::SGD stranger(Tensors{leaf(at::zeros({2}))}, 0.1);
    EXPECT_THAT(message_of<UsageError>([&] { fused.give_back(stranger); }), HasSubstr("other groups"));
    EXPECT_THAT(message_of<UsageError>([&] { stage(*other.state); }), HasSubstr("'optimizer' has no slots"));
    TrainState theirs;
    theirs.add("model", *other.net);
    theirs.add("optimizer", fused);
    EXPECT_TRUE(holds(*stage(theirs), "optimizer/momentum_buffer/0.weight"));
    fused.give_back(torchs);
    EXPECT_THAT(message_of<UsageError>([&] { stage(theirs); }), HasSubstr("give_back()"));
    stage(*other.state);
  }
  EXPECT_EQ(torchs.param_groups()[0].options().get_lr(), 0.05);
  other.train(2);
  const Tensors left = one.net->parameters(), right = other.net->parameters();
  for (std::size_t i = 0; i < left.size(); ++i) EXPECT_TRUE(left[i].equal(right[i]));
}

// Whoever went on with an optimizer whose slots another has would lose them without a word.
TEST(Adoption, OfSlotsThatAreElsewhereIsRefused) {
  const Tensors parameters = {leaf(at::ones({3}))};
  parameters[0].mutable_grad() = at::ones({3});
  const auto options = to::AdamOptions(0.1);
  to::Adam torchs(parameters, options);
  torchs.step();
  FusedAdam fused(torchs);
  EXPECT_THAT(message_of<UsageError>([&] { FusedAdam second(torchs); }), HasSubstr("another optimizer has"));
  EXPECT_THAT(message_of<UsageError>([&] { fused.give_back(fused); }), HasSubstr("to itself"));
  fused.give_back(torchs);
  EXPECT_THAT(message_of<UsageError>([&] { fused.give_back(torchs); }), HasSubstr("another optimizer has"));
  const at::Tensor before = parameters[0].detach().clone();
  EXPECT_THAT(message_of<UsageError>([&] { fused.step(); }), HasSubstr("another optimizer has"));
  EXPECT_TRUE(parameters[0].equal(before));
  torchs.step();
  EXPECT_EQ(static_cast<to::AdamParamState&>(*torchs.state().begin()->second).step(), 2);
}

TEST(Maximize, TakesNoSlotsThatWentDown) {
  const Tensors parameters = {leaf(at::ones({3}))};
  parameters[0].mutable_grad() = at::ones({3});
  to::SGD down(parameters, to::SGDOptions(0.1).momentum(0.9));
  down.step();
  EXPECT_THAT(message_of<UsageError>([&] { FusedSgd up(down, {.maximize = true}); }),
              HasSubstr("would go on up"));
  EXPECT_EQ(down.state().size(), 1U);
}

TEST(Maximize, IsNotLostInAdoption) {
  const Tensors parameters = {leaf(at::ones({3}))};
  FusedSgd up(parameters, to::SGDOptions(0.1), {.maximize = true});
  to::SGD torchs(parameters, to::SGDOptions(0.1));
  EXPECT_THAT(message_of<UsageError>([&] { up.give_back(torchs); }), HasSubstr("would go on down"));
  EXPECT_THAT(message_of<UsageError>([&] { FusedSgd adopting(static_cast<to::SGD&>(up)); }),
              HasSubstr("FusedOptions::maximize"));
  FusedSgd adopting(static_cast<to::SGD&>(up), {.maximize = true});
  FusedSgd back(parameters, to::SGDOptions(0.1), {.maximize = true});
  adopting.give_back(back);
}

TEST(Maximize, GoesUpAndIsRecorded) {
  Program down("sgd");
  Program up("sgd");
  up.use(
      std::make_unique<FusedSgd>(up.net->parameters(), to::SGDOptions(0.05), FusedOptions{.maximize = true}));
  down.use(std::make_unique<FusedSgd>(down.net->parameters(), to::SGDOptions(0.05)));
  const at::Tensor start = up.net->parameters()[0].detach().clone();
  torch::manual_seed(2);
  up.train(1);
  torch::manual_seed(2);
  down.train(1);
  EXPECT_TRUE((up.net->parameters()[0] + down.net->parameters()[0]).allclose(start * 2));
  const auto snapshot = stage(*up.state);
  EXPECT_THAT(message_of<RefusedError>(
                  [&] { down.state->check(snapshot->layout->tensors(), snapshot->attributes, {}); }),
              HasSubstr("optimizer.maximize"));
}

}}  // namespace holdfast::test
