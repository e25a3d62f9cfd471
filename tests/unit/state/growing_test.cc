// State that changes its form: shapes that grow, groups that are appended.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <memory>
#include <string>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/state/stored_optimizer.h"
#include "holdfast/state/train_state.h"
#include "unit/state/modules.h"
#include "unit/state/staging.h"

namespace holdfast::test { namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using torch::optim::Adam;
using torch::optim::AdamOptions;
using torch::optim::AdamParamState;

// Rows of two tensors, which a program makes more of in the usual way: a new tensor in the module and in its
// group, and moments with zeros for the new rows.
struct Cloud final : torch::nn::Module {
  explicit Cloud(std::int64_t rows) {
    means = register_parameter("means", at::rand({rows, 3}));
    opacity = register_parameter("opacity", at::rand({rows}));
    seen = register_buffer("seen", at::zeros({rows}));
  }
  at::Tensor loss() const { return (means.sum(1) * opacity).pow(2).sum(); }
  void replace(const std::string& name, const at::Tensor& tensor) {
    (name == "means" ? means : opacity) = tensor;
    parameters_[name] = tensor;
  }
  void clear_seen() { seen.set_data(at::zeros({means.size(0)})); }
  at::Tensor means, opacity, seen;
};

struct Splats {
  explicit Splats(std::int64_t rows = 4, ModuleOptions options = {.may_change_shape = true})
      : cloud(rows), adam(groups(cloud), AdamOptions(0.01)) {
    state.add("splats", cloud, options);
    state.add("adam", adam);
  }
  static std::vector<torch::optim::OptimizerParamGroup> groups(const Cloud& cloud) {
    return {torch::optim::OptimizerParamGroup({cloud.means}),
            torch::optim::OptimizerParamGroup({cloud.opacity})};
  }
  void train(int steps) {
    for (int i = 0; i < steps; ++i) {
      adam.zero_grad();
      cloud.loss().backward();
      adam.step();
      state.advance({});
    }
  }
  void densify(std::int64_t rows) {
    const at::NoGradGuard no_grad;
    grow("means", adam.param_groups()[0].params()[0], rows);
    grow("opacity", adam.param_groups()[1].params()[0], rows);
    cloud.clear_seen();
  }
  void grow(const std::string& name, at::Tensor& listed, std::int64_t rows) {
    const auto longer = [&](const at::Tensor& tensor, double value) {
      auto shape = tensor.sizes().vec();
      shape[0] = rows;
      return at::cat({tensor, at::full(shape, value)});
    };
    const at::Tensor next = longer(listed.detach(), 0.3).requires_grad_();
    auto& states = adam.state();
    auto old = states.find(listed.unsafeGetTensorImpl());
    if (old != states.end()) {
      auto moments = std::make_unique<AdamParamState>(static_cast<AdamParamState&>(*old->second));
      moments->exp_avg(longer(moments->exp_avg(), 0));
      moments->exp_avg_sq(longer(moments->exp_avg_sq(), 0));
      states.erase(old);
      states[next.unsafeGetTensorImpl()] = std::move(moments);
    }
    cloud.replace(name, next);
    listed = next;
  }
  Cloud cloud;
  Adam adam;
  TrainState state;
};

TEST(Growing, ALoadGivesTheRecordedShapesAndTheRunGoesOnBitByBit) {
  torch::manual_seed(3);
  Splats first;
  first.train(3);
  first.densify(5);
  first.train(2);
  const auto snapshot = stage(first.state);

  Splats second;
  second.train(1);  // has gradients and moments of its own shape
  const void* const means = second.cloud.means.unsafeGetTensorImpl();
  second.state.load(*snapshot, {});
  EXPECT_EQ(second.cloud.means.sizes(), at::IntArrayRef({9, 3}));
  EXPECT_EQ(second.cloud.seen.sizes(), at::IntArrayRef({9}));
  EXPECT_EQ(second.cloud.means.unsafeGetTensorImpl(), means) << "whoever holds the tensor holds it still";
  EXPECT_TRUE(second.cloud.means.requires_grad());
  EXPECT_FALSE(second.cloud.means.grad().defined());
  EXPECT_EQ(digest(second.state), digest(*snapshot));
  first.train(3);
  second.train(3);
  EXPECT_EQ(digest(second.state), digest(first.state));
}

TEST(Growing, AStateMayAlsoShrinkAndBeEmpty) {
  Splats large(7), small(2), none(0);
  large.train(1);
  large.state.load(*stage(small.state), {});
  EXPECT_EQ(large.cloud.opacity.sizes(), at::IntArrayRef({2}));
  EXPECT_TRUE(large.adam.state().empty()) << "the checkpoint has no moments";
  const auto empty = stage(none.state);
  large.state.load(*empty, {});
  EXPECT_EQ(large.cloud.means.sizes(), at::IntArrayRef({0, 3}));
  EXPECT_EQ(digest(large.state), digest(*empty));
  none.state.load(*stage(small.state), {});
  none.train(1);
  EXPECT_EQ(none.cloud.means.size(0), 2);
}

TEST(Growing, ShapesChangeAlsoAfterTheFormIsFixed) {
  Splats splats;
  const auto form = splats.state.hold(Hold::form);
  splats.train(2);
  static_cast<void>(stage(splats.state));
  splats.densify(3);
  const auto grown = stage(splats.state);
  EXPECT_EQ(grown->layout->tensors()[*grown->layout->find("adam/exp_avg/means")].shape,
            (std::vector<std::int64_t>{7, 3}));
  splats.train(1);
  static_cast<void>(stage(splats.state));
}

TEST(Growing, WithoutTheWordAShapeIsAsStrictAsBefore) {
  Splats strict(4, {}), other(5, {});
  EXPECT_THAT(message_of<RefusedError>([&] { strict.state.load(*stage(other.state), {}); }),
              HasSubstr("splats/means is float32 [4, 3] here and float32 [5, 3] in the checkpoint"));
  const auto form = strict.state.hold(Hold::form);
  strict.densify(1);
  EXPECT_THAT(message_of<UnsavableError>([&] { stage(strict.state); }),
              HasSubstr(".may_change_shape = true"));
}

TEST(Growing, TypesNamesAndSlotsStayStrict) {
  Splats splats;
  const auto snapshot = stage(splats.state);
  const auto form = splats.state.hold(Hold::form);
  splats.cloud.to(at::kDouble);
  EXPECT_THAT(message_of<UnsavableError>([&] { stage(splats.state); }),
              HasSubstr("splats/means is float64 of any shape and was float32 of any shape"));

  Splats other;
  other.cloud.to(at::kDouble);
  EXPECT_THAT(message_of<RefusedError>([&] { other.state.load(*snapshot, {}); }),
              HasSubstr("splats/means is float64 [4, 3] here and float32 [4, 3] in the checkpoint"));

  // The moments were forgotten.
  Splats half;
  half.train(1);
  const auto fixed = half.state.hold(Hold::form);
  half.cloud.means.set_data(at::zeros({9, 3}));
  EXPECT_THAT(message_of<UnsavableError>([&] { stage(half.state); }),
              HasSubstr("adam/exp_avg/means has the shape [4, 3], and its parameter [9, 3]"));

  Splats missing;
  missing.cloud.register_parameter("colour", at::zeros({4}));
  EXPECT_THAT(message_of<RefusedError>([&] { missing.state.load(*snapshot, {}); }),
              HasSubstr("splats/colour (float32 [4]) is missing in the checkpoint"));
}

TEST(Growing, ARefusedCheckpointChangesNothing) {
  Splats first(6);
  first.train(2);
  const auto damaged = stage(first.state);
  auto shape = damaged->layout->tensors();
  damaged->attributes.set("adam.group.0.steps", std::vector<std::int64_t>{1, 2});
  Splats second;
  second.train(1);
  const std::string before = digest(second.state);
  EXPECT_THROW(second.state.load(*damaged, {}), RefusedError);
  EXPECT_EQ(digest(second.state), before);
}

TEST(Growing, TwoTensorsOverOneMemoryCannotChangeTheirShape) {
  const at::Tensor memory = at::ones({4});
  Bag bag;
  bag.parameter("weight", memory).buffer("view", memory.detach());
  TrainState state;
  EXPECT_THAT(
      message_of<UsageError>([&] { state.add("bag", bag, {.may_change_shape = true}); }),
      AllOf(HasSubstr("'bag/weight'"), HasSubstr("'bag/view'"), HasSubstr("two tensors over one memory")));
  state.add("bag", bag);
}

TEST(Growing, OneTensorUnderTwoNamesKeepsBoth) {
  const auto make = [](Bag& bag, std::int64_t rows) {
    const at::Tensor shared = at::rand({rows, 2}).set_requires_grad(true);
    bag.parameter("encoder", shared).parameter("decoder", shared);
  };
  Bag first, second;
  make(first, 5);
  make(second, 3);
  TrainState before, after;
  before.add("bag", first, {.may_change_shape = true});
  after.add("bag", second, {.may_change_shape = true});
  after.load(*stage(before), {});
  EXPECT_EQ(second.named_parameters()["decoder"].size(0), 5);
  EXPECT_TRUE(second.named_parameters()["decoder"].is_same(second.named_parameters()["encoder"]));
}

TEST(Growing, WeightsAloneBringTheirShapes) {
  Splats first(6), second(2);
  second.state.load(*stage(first.state), {.weights_only = true});
  EXPECT_TRUE(second.cloud.means.equal(first.cloud.means));
}

TEST(Growing, GradientsOfZerosHaveTheRecordedShape) {
  const auto pass = [](Splats& splats) {
    splats.adam.zero_grad(false);
    splats.cloud.loss().backward();
    splats.adam.step();
    splats.state.advance({});
  };
  Splats first(6), second(2);
  for (int i = 0; i < 4; ++i) pass(first);
  second.state.load(*stage(first.state), {});
  ASSERT_TRUE(second.cloud.means.grad().defined());
  EXPECT_EQ(second.cloud.means.grad().sizes(), at::IntArrayRef({6, 3}));
  pass(first);
  pass(second);
  EXPECT_EQ(digest(second.state), digest(first.state));
}

TEST(Growing, TensorsThatMayChangeAreNoLateOnes) {
  Splats splats, strict(4, {});
  splats.train(1);
  strict.train(1);
  const auto changes = [](Splats& one) {
    const auto image = empty_snapshot(one.state);
    one.state.copy(*image->layout, image->arena->bytes(), Part::early);
    const auto late = one.state.copy(*image->layout, image->arena->bytes(), Part::late);
    late->run();
    const at::NoGradGuard no_grad;
    one.cloud.means.add_(1);
    return late->changed();
  };
  EXPECT_THAT(changes(splats), ElementsAre()) << "between after_step() and before_update() it may grow";
  EXPECT_THAT(changes(strict), ElementsAre("splats/means"));
}

// Two modules, one of which is trained from the start.
struct Tuning {
  explicit Tuning(bool both, OptimizerOptions options = {.may_append_groups = true})
      : sgd(head->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)) {
    if (both) unfreeze();
    state.add("head", *head);
    state.add("trunk", *trunk);
    state.add("sgd", sgd, options);
  }
  void unfreeze() {
    sgd.add_param_group(torch::optim::OptimizerParamGroup(
        trunk->parameters(), std::make_unique<torch::optim::SGDOptions>(torch::optim::SGDOptions(0.01))));
  }
  void train(int steps) {
    for (int i = 0; i < steps; ++i) {
      sgd.zero_grad();
      head->forward(trunk->forward(at::ones({2, 3}))).pow(2).sum().backward();
      sgd.step();
      state.advance({});
    }
  }
  torch::nn::Linear trunk{3, 4}, head{4, 2};
  torch::optim::SGD sgd;
  TrainState state;
};

TEST(AppendedGroups, ALoadAppendsThemWithTheirOptions) {
  Tuning first(false);
  const auto form = first.state.hold(Hold::form);
  first.train(2);
  static_cast<void>(stage(first.state));
  first.unfreeze();
  first.train(2);
  first.sgd.param_groups()[1].options().set_lr(0.005);  // as a schedule does
  const auto snapshot = stage(first.state);

  Tuning second(false);
  second.state.load(*snapshot, {});
  ASSERT_EQ(second.sgd.param_groups().size(), 2U);
  const auto& options = static_cast<torch::optim::SGDOptions&>(second.sgd.param_groups()[1].options());
  EXPECT_EQ(options.lr(), 0.005);
  EXPECT_EQ(options.momentum(), 0);
  EXPECT_TRUE(second.sgd.param_groups()[1].params()[0].is_same(second.trunk->weight));
  EXPECT_EQ(digest(second.state), digest(*snapshot));
  first.train(2);
  second.train(2);
  EXPECT_EQ(digest(second.state), digest(first.state));
}

TEST(AppendedGroups, OnlyIfTheProgramAsksForIt) {
  Tuning first(true);
  first.train(1);
  const auto snapshot = stage(first.state);
  Tuning second(false, {});
  EXPECT_THAT(message_of<RefusedError>([&] { second.state.load(*snapshot, {}); }),
              AllOf(HasSubstr("'sgd' has 1 parameter groups here and 2 in the checkpoint"),
                    HasSubstr("Make and add before resume() what the checkpoint has")));
  const auto form = second.state.hold(Hold::form);
  second.unfreeze();
  EXPECT_THAT(message_of<UnsavableError>([&] { stage(second.state); }),
              HasSubstr(".may_append_groups = true"));
}

TEST(AppendedGroups, AProgramThatMadeThemItselfNeedsNothing) {
  Tuning first(true), second(true);
  first.train(2);
  second.state.load(*stage(first.state), {});
  EXPECT_EQ(digest(second.state), digest(first.state));
  EXPECT_EQ(second.sgd.param_groups().size(), 2U);
}

TEST(AppendedGroups, WhatTheFileSaysIsChecked) {
  Tuning first(true);
  first.train(1);
  const auto refusal = [&](const std::string& name, const AttributeValue& value) {
    const auto snapshot = stage(first.state);
    snapshot->attributes.set(name, value);
    Tuning second(false);
    const std::string before = digest(second.state);
    const std::string text = message_of<RefusedError>([&] { second.state.load(*snapshot, {}); });
    EXPECT_EQ(digest(second.state), before);
    EXPECT_EQ(second.sgd.param_groups().size(), 1U);
    return text;
  };
  using Names = std::vector<std::string>;
  EXPECT_THAT(refusal("sgd.group.1.parameters", Names{"trunk.weight", "trunk.colour"}),
              HasSubstr("no added module has a parameter 'trunk.colour' that is in no group yet"));
  EXPECT_THAT(refusal("sgd.group.1.parameters", Names{"trunk.weight", "trunk.weight"}),
              HasSubstr("no added module has a parameter 'trunk.weight' that is in no group yet"));
  EXPECT_THAT(refusal("sgd.group.1.parameters", Names{"head.weight", "trunk.bias"}),
              HasSubstr("no added module has a parameter 'head.weight' that is in no group yet"));
  EXPECT_THAT(refusal("sgd.group.1.lr", std::string("fast")),
              HasSubstr("'sgd.group.1.lr' is of another type"));
  EXPECT_THAT(refusal("sgd.group.1.steps", std::vector<std::int64_t>{1}), HasSubstr("another length"));
}

TEST(AppendedGroups, OtherChangesOfGroupsAreStillRefused) {
  Tuning tuning(true);
  const auto form = tuning.state.hold(Hold::form);
  tuning.sgd.param_groups().pop_back();
  EXPECT_THAT(message_of<UnsavableError>([&] { stage(tuning.state); }),
              HasSubstr("'sgd' has 1 parameter groups and had 2"));
}

// A class of one's own that does what TrainState does.
struct OwnSplats {
  explicit OwnSplats(std::int64_t rows) : cloud(rows), adam(Splats::groups(cloud), AdamOptions(0.01)) {}
  std::vector<NamedTensor> tensors() const { return {{"means", cloud.means}, {"opacity", cloud.opacity}}; }
  void save(StateWriter& out) const {
    put_tensors(out, "cloud", tensors());
    put_optimizer(out, "adam", tensors(), adam);
  }
  void load(const StateReader& in) {
    get_tensors(in, "cloud", tensors());
    get_optimizer(in, "adam", tensors(), adam);
  }
  void train() {
    adam.zero_grad();
    cloud.loss().backward();
    adam.step();
  }
  Cloud cloud;
  Adam adam;
};

TEST(StoredOptimizer, ComesBackWithAnyShape) {
  OwnSplats first(5), second(2);
  TrainState before, after;
  before.add("splats", first);
  after.add("splats", second);
  first.train();
  first.train();
  first.adam.param_groups()[1].options().set_lr(0.5);
  const auto snapshot = stage(before);
  EXPECT_TRUE(holds(*snapshot, "splats/cloud/means"));
  EXPECT_TRUE(holds(*snapshot, "splats/adam/exp_avg/means"));
  after.load(*snapshot, {});
  EXPECT_EQ(second.adam.param_groups()[1].options().get_lr(), 0.5) << "options are state here";
  EXPECT_TRUE(second.cloud.means.requires_grad());
  EXPECT_EQ(digest(after), digest(*snapshot));
  first.train();
  second.train();
  EXPECT_EQ(digest(after), digest(before));
}

TEST(StoredOptimizer, KeepsOneStateForAllParametersToo) {
  struct Own {
    explicit Own(std::int64_t rows) : weight(at::rand({rows}).requires_grad_()), lbfgs({weight}, 0.5) {}
    void save(StateWriter& out) const {
      put_tensors(out, "all", {{"weight", weight}});
      put_optimizer(out, "lbfgs", {{"weight", weight}}, lbfgs);
    }
    void load(const StateReader& in) {
      get_tensors(in, "all", {{"weight", weight}});
      get_optimizer(in, "lbfgs", {{"weight", weight}}, lbfgs);
    }
    void train() {
      lbfgs.step([&] {
        lbfgs.zero_grad();
        at::Tensor loss = (weight.pow(4) - weight).sum();
        loss.backward();
        return loss;
      });
    }
    at::Tensor weight;
    torch::optim::LBFGS lbfgs;
  };
  Own first(6), second(3);
  TrainState before, after;
  before.add("own", first);
  after.add("own", second);
  first.train();
  after.load(*stage(before), {});
  first.train();
  second.train();
  EXPECT_EQ(digest(after), digest(before));
}

TEST(StoredOptimizer, RefusesWhatDoesNotFitAndChangesNothing) {
  OwnSplats first(5), second(2);
  TrainState before, after;
  before.add("splats", first);
  after.add("splats", second);
  first.train();
  const std::string now = digest(after);
  const auto refusal = [&](const std::string& name, const AttributeValue& value) {
    const auto snapshot = stage(before);
    snapshot->attributes.set(name, value);
    const std::string text = message_of<RefusedError>([&] { after.load(*snapshot, {}); });
    EXPECT_EQ(digest(after), now) << name;
    return text;
  };
  using Names = std::vector<std::string>;
  EXPECT_THAT(refusal("splats.cloud.tensors", Names{"means"}), HasSubstr("'cloud' has the tensors"));
  EXPECT_THAT(refusal("splats.adam.type", std::string("SGD")),
              HasSubstr("'adam' is Adam here and SGD in the checkpoint"));
  EXPECT_THAT(refusal("splats.adam.group.1.parameters", Names{"means"}),
              HasSubstr("group 1 of 'adam' has other parameters"));
  EXPECT_THAT(refusal("splats.adam.group.0.now.lr", std::int64_t{3}), HasSubstr("adam.group.0.now.lr"));

  second.cloud.means.set_data(at::zeros({2, 3}, at::kDouble));
  EXPECT_THAT(message_of<RefusedError>([&] { after.load(*stage(before), {}); }),
              HasSubstr("cloud/means is float64 [2, 3] here and float32 [5, 3] in the checkpoint"));
  EXPECT_EQ(second.cloud.opacity.size(0), 2);
  struct Nameless {
    void save(StateWriter& out) const { put_optimizer(out, "adam", {{"means", own.cloud.means}}, own.adam); }
    void load(const StateReader&) {}
    OwnSplats own{2};
  } nameless;
  TrainState unnamed;
  unnamed.add("own", nameless);
  EXPECT_THAT(message_of<UsageError>([&] { stage(unnamed); }),
              HasSubstr("a parameter of group 1 of 'adam', of shape [2], is not among the parameters"));
}

TEST(Clashes, ATensorThatIsAlsoAFolderIsRefusedWhenItIsAdded) {
  struct Clashing {
    void save(StateWriter& out) const {
      out.put_tensor("means", at::ones({2}));
      out.put_tensor("means/exp_avg", at::ones({2}));
    }
    void load(const StateReader&) {}
  } clashing;
  TrainState state;
  EXPECT_THAT(message_of<UsageError>([&] { state.add("splats", clashing); }),
              AllOf(HasSubstr("'splats/means'"), HasSubstr("'splats/means/exp_avg'")));
  EXPECT_THAT(names_of(state), ElementsAre("rng/cpu"));
}

TEST(Clashes, AComponentThatIsNotReadyIsLookedAtLater) {
  struct Unready {
    void save(StateWriter& out) const { out.put_tensor("mean", mean); }
    void load(const StateReader&) {}
    at::Tensor mean;
  } unready;
  TrainState state;
  state.add("average", unready);
  unready.mean = at::ones({2});
  EXPECT_THAT(names_of(state), ElementsAre("average/mean", "rng/cpu"));
}

}}  // namespace holdfast::test
