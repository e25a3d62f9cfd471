// Which tensors are copied when, and into what.
#include "unit/state/staging.h"

#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <map>

#include "holdfast/base/error.h"
#include "holdfast/state/train_state.h"
#include "unit/state/modules.h"

namespace holdfast::test { namespace {

using ::testing::ElementsAre;
using Strings = std::vector<std::string>;

TEST(Staging, AHeldListEndsWithItsHoldersAndWithWhatChangesTheState) {
  Bag bag;
  bag.parameter("a", at::ones({2}));
  TrainState state;
  state.add("model", bag);
  const Strings alone = {"model/a", "rng/cpu"};
  const Strings both = {"model/a", "model/b", "rng/cpu"};
  auto outer = state.hold(Hold::list);
  auto inner = state.hold(Hold::list);
  EXPECT_EQ(outer, inner) << "nested holds share one list";
  bag.parameter("b", at::ones({2}));  // forbidden while it is held, and not seen
  EXPECT_EQ(names_of(state), alone);
  outer.reset();
  EXPECT_EQ(names_of(state), alone);
  inner.reset();
  EXPECT_EQ(names_of(state), both);

  const auto forgotten = state.hold(Hold::list);
  bag.parameter("c", at::ones({2}));
  state.advance({});
  EXPECT_EQ(names_of(state).size(), 4U) << "an update ends it";
  const auto before = state.hold(Hold::list);
  torch::optim::SGD optimizer(bag.parameters(), torch::optim::SGDOptions(0.1));
  state.add("optimizer", optimizer);
  EXPECT_TRUE(state.attributes().has("optimizer.type")) << "a new part ends it";
}

TEST(Staging, EarlyAndLateAreDisjointAndWhole) {
  torch::nn::BatchNorm1d net(3), average(3);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  Average component;
  component.updates = 1;
  component.mean = at::ones({2});
  TrainState state;
  state.add("model", *net);
  state.add("ema", *average);  // changed by the loop, whenever it likes
  state.add("optimizer", optimizer);
  state.add("average", component);
  net->forward(at::rand({4, 3})).square().sum().backward();
  optimizer.step();

  const auto whole = stage(state);
  std::map<Part, Strings> written;
  for (const Part part : {Part::early, Part::late}) {
    const auto image = empty_snapshot(state);
    std::fill(image->arena->bytes().begin(), image->arena->bytes().end(), std::byte{0xa5});
    if (const auto late = state.copy(*image->layout, image->arena->bytes(), part)) late->run();
    for (std::size_t i = 0; i < image->layout->tensors().size(); ++i) {
      const auto bytes = image->bytes(i), all = whole->bytes(i);
      if (std::equal(bytes.begin(), bytes.end(), all.begin()))
        written[part].push_back(image->layout->tensors()[i].name);
    }
  }
  EXPECT_THAT(written[Part::late],
              ElementsAre("model/weight", "model/bias", "optimizer/momentum_buffer/weight",
                          "optimizer/momentum_buffer/bias"));
  EXPECT_EQ(written[Part::early].size() + written[Part::late].size(), whole->layout->tensors().size());
}

TEST(Staging, AParameterThatIsAlsoABufferIsEarly) {
  Bag bag;
  const at::Tensor shared = at::ones({4}).set_requires_grad(true);
  bag.parameter("weight", shared).buffer("view", shared.detach());
  torch::optim::SGD optimizer(bag.parameters(), torch::optim::SGDOptions(0.1));
  TrainState state;
  state.add("model", bag);
  state.add("optimizer", optimizer);
  const auto image = empty_snapshot(state);
  state.copy(*image->layout, image->arena->bytes(), Part::late)->run();
  EXPECT_EQ(values<float>(*image, "model/weight")[0], 0) << "forward() may change it before the next update";
  state.copy(*image->layout, image->arena->bytes(), Part::early);
  EXPECT_EQ(values<float>(*image, "model/weight")[0], 1);
}

TEST(Staging, AnImageOfAnotherStateIsADefect) {
  torch::nn::Linear net(2, 2);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  TrainState state;
  state.add("model", *net);
  state.add("optimizer", optimizer);
  const auto old = empty_snapshot(state);
  net->forward(at::rand({1, 2})).sum().backward();
  optimizer.step();
  EXPECT_THROW(state.copy(*old->layout, old->arena->bytes(), Part::all), Error);
}

TEST(Staging, ThreadsCopyWhatOneThreadCopies) {
  Bag bag;
  for (int i = 0; i < 20; ++i) bag.buffer("b" + std::to_string(i), at::randn({i * i * 100}));
  TrainState state;
  state.add("model", bag);
  at::set_num_threads(1);
  const std::string one = digest(state);
  at::set_num_threads(2);
  EXPECT_EQ(digest(state), one) << "and the number of threads decides nothing";
  at::set_num_threads(1);
}

}}  // namespace holdfast::test
