// Modules, components, streams, counters, and what is refused.
#include "holdfast/state/train_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <functional>
#include <optional>

#include "holdfast/base/error.h"
#include "unit/state/modules.h"
#include "unit/state/staging.h"

namespace holdfast::test { namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Strings = std::vector<std::string>;

TEST(Modules, TensorsComeInOrderOfRegistration) {
  Bag bag;
  bag.buffer("z", at::zeros({2})).parameter("b", at::ones({2})).parameter("a", at::ones({2}));
  bag.child("norm", torch::nn::BatchNorm1d(3));
  TrainState state;
  state.add("model", bag);
  const auto expected = ElementsAre("model/b", "model/a", "model/norm.weight", "model/norm.bias", "model/z",
                                    "model/norm.running_mean", "model/norm.running_var",
                                    "model/norm.num_batches_tracked", "rng/cpu");
  EXPECT_THAT(names_of(state), expected);
  EXPECT_THAT(names_of(state), expected) << "and the same each time";
}

TEST(Modules, EveryElementTypeAndShapeComesBack) {
  const auto fill = [](Bag& bag, double value) {
    bag.parameter("scalar", at::full({}, value, at::kFloat));
    bag.parameter("empty", at::zeros({0, 3}));
    bag.buffer("flag", at::full({3}, value > 1, at::kBool));
    for (const auto type : {at::kHalf, at::kBFloat16, at::kDouble, at::kByte, at::kChar, at::kShort, at::kInt,
                            at::kLong, at::kComplexFloat, at::kComplexDouble}) {
      bag.buffer(c10::toString(type), at::full({2, 5}, value, type));
    }
    bag.buffer("eights", at::full({7}, value, at::kFloat).to(at::kFloat8_e4m3fn));
    bag.buffer("turned", (at::arange(12, at::kFloat) * value).view({3, 4}).t());
    bag.buffer("sliced", (at::arange(20, at::kFloat) * value).view({4, 5}).narrow(1, 1, 2));
    bag.buffer("large", at::full({300, 301}, value, at::kFloat));
  };
  Bag first, second;
  fill(first, 3);
  fill(second, 1);
  TrainState before, after;
  before.add("model", first);
  after.add("model", second);
  const auto snapshot = stage(before);
  EXPECT_THAT(values<float>(*snapshot, "model/turned"),
              ElementsAre(0, 12, 24, 3, 15, 27, 6, 18, 30, 9, 21, 33))
      << "logical order, as h5py reads it";
  after.load(*snapshot, {});
  for (const auto& item : first.named_buffers()) {
    EXPECT_TRUE(item.value().equal(second.named_buffers()[item.key()]) || item.key() == "eights")
        << item.key();
    EXPECT_EQ(item.value().strides(), second.named_buffers()[item.key()].strides()) << item.key();
  }
  EXPECT_EQ(digest(after), digest(*snapshot));
}

TEST(Modules, TiedTensorsAreStoredOnce) {
  const auto make = [](Bag& bag, double value) {
    const at::Tensor shared = at::full({4, 2}, value, at::kFloat).set_requires_grad(true);
    bag.parameter("encoder", shared).parameter("decoder", shared).buffer("view", shared.detach());
  };
  Bag first, second, untied;
  make(first, 1);
  make(second, 2);
  untied.parameter("encoder", at::ones({4, 2}))
      .parameter("decoder", at::ones({4, 2}))
      .buffer("view", at::ones({4, 2}));
  TrainState before, after, other;
  before.add("model", first);
  after.add("model", second);
  other.add("model", untied);
  const auto snapshot = stage(before);
  EXPECT_THAT(names_of(before), ElementsAre("model/encoder", "rng/cpu"));
  EXPECT_EQ(snapshot->attributes.get_string("model.alias.decoder"), "model/encoder");
  after.load(*snapshot, {});
  EXPECT_EQ(second.named_parameters()["decoder"][0][0].item<float>(), 1);
  EXPECT_TRUE(second.named_parameters()["decoder"].is_same(second.named_parameters()["encoder"]));
  EXPECT_THAT(message_of<RefusedError>([&] { other.load(*snapshot, {}); }),
              HasSubstr("model/decoder is a tensor of its own here and the same tensor as model/encoder"));
  EXPECT_THAT(message_of<RefusedError>([&] { after.load(*stage(other), {}); }),
              HasSubstr("model/view is the same tensor as model/encoder here"));
}

TEST(Modules, WhatCannotBeRestoredIsRefusedByName) {
  const auto refusal = [](const std::function<void(Bag&)>& fill) {
    Bag bag;
    fill(bag);
    TrainState state;
    return message_of<UsageError>([&] { state.add("model", bag); });
  };
  const at::Tensor flat = at::zeros({10});
  EXPECT_THAT(refusal([&](Bag& bag) {
                bag.buffer("left", flat.narrow(0, 0, 6)).buffer("right", flat.narrow(0, 4, 6));
              }),
              AllOf(HasSubstr("model/left"), HasSubstr("model/right"), HasSubstr("share memory")));
  EXPECT_THAT(refusal([&](Bag& bag) { bag.buffer("whole", flat).buffer("part", flat.narrow(0, 9, 1)); }),
              HasSubstr("model/part"));
  EXPECT_THAT(refusal([&](Bag& bag) { bag.buffer("wide", at::zeros({1}).expand({5})); }),
              HasSubstr("clone()"));
  EXPECT_THAT(refusal([&](Bag& bag) { bag.buffer("a/b", flat); }), HasSubstr("'a/b'"));
  EXPECT_THAT(refusal([&](Bag& bag) { bag.buffer(std::string("a\0b", 3), flat); }), HasSubstr("a\\x00b"));
  EXPECT_THAT(refusal([&](Bag& bag) { bag.buffer(std::string(10'000, 'n'), flat); }),
              HasSubstr("has 10000 bytes, and at most 768"));
  EXPECT_THAT(refusal([&](Bag& bag) { bag.buffer("a\xff", flat); }),
              HasSubstr("a\\xff' in module 'model' is not UTF-8"));
  EXPECT_THAT(refusal([&](Bag& bag) {
                bag.buffer("sparse", at::ones({3, 3}).to_sparse());
              }),
              HasSubstr("model/sparse"));
  Bag apart;
  apart.buffer("left", flat.narrow(0, 0, 5)).buffer("right", flat.narrow(0, 5, 5));
  apart.buffer("row", at::zeros({4}).expand({1, 4}));
  TrainState state;
  state.add("model", apart);
}

TEST(Modules, FlagsAndCountersComeBack) {
  const auto make = [](Bag& bag) {
    auto norm = bag.child("norm", torch::nn::BatchNorm1d(3));
    bag.child("drop", torch::nn::Dropout(0.5));
    bag.child("head", torch::nn::Linear(3, 2));
    return norm;
  };
  Bag first, second;
  auto norm = make(first);
  make(second);
  norm->forward(at::rand({4, 3}));
  norm->forward(at::rand({4, 3}));
  norm->eval();
  first.named_parameters()["head.weight"].set_requires_grad(false);
  TrainState before, after;
  before.add("model", first);
  after.add("model", second);
  const auto snapshot = stage(before);
  EXPECT_EQ(snapshot->attributes.get_strings("model.evaluating"), Strings{"norm"});
  EXPECT_EQ(snapshot->attributes.get_strings("model.frozen"), Strings{"head.weight"});
  second.eval();
  after.load(*snapshot, {});
  EXPECT_TRUE(second.is_training());
  EXPECT_EQ(digest(after), digest(*snapshot));
  EXPECT_EQ(second.named_buffers()["norm.num_batches_tracked"].item<std::int64_t>(), 2);
  EXPECT_FALSE(second.named_parameters()["head.weight"].requires_grad());
  EXPECT_TRUE(second.named_parameters()["head.bias"].requires_grad());
}

TEST(Modules, AreReadAnewEachTime) {
  torch::nn::Linear net(3, 3);
  TrainState state;
  state.add("model", *net);
  EXPECT_EQ(state.describe().front().dtype, DType::float32);
  net->to(at::kDouble);
  EXPECT_EQ(state.describe().front().dtype, DType::float64);
  EXPECT_EQ(values<double>(*stage(state), "model/weight")[0], net->weight[0][0].item<double>());
}

TEST(Modules, AChangedModelIsNamedAndNothingIsTouched) {
  const auto net = [](std::int64_t width, bool extra) {
    Bag bag;
    bag.child("fc", torch::nn::Linear(4, width));
    bag.parameter(extra ? "extra" : "other", at::zeros({2}));
    return bag;
  };
  Bag first = net(3, false), second = net(5, true);
  TrainState before, after;
  before.add("model", first);
  before.option("seed", std::int64_t{1});
  after.add("model", second);
  after.option("seed", std::int64_t{2});
  const auto snapshot = stage(before);
  const std::string untouched = digest(after);
  const std::string text = message_of<RefusedError>([&] { after.load(*snapshot, {}); });
  for (const char* part : {"model/fc.weight is float32 [5, 4] here and float32 [3, 4] in the checkpoint",
                           "model/fc.bias", "model/extra (float32 [2]) is missing in the checkpoint",
                           "model/other (float32 [2]) is in the checkpoint and not in this model",
                           "seed is 2 here and 1 in the checkpoint"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(digest(after), untouched);
  EXPECT_THROW(after.check(snapshot->layout->tensors(), snapshot->attributes, {"seed"}), RefusedError);
}

TEST(Modules, WeightsAloneLeaveTheRestFresh) {
  torch::nn::BatchNorm1d first(3), second(3);
  torch::nn::Linear wide(3, 3);
  first->forward(at::randn({4, 3}));
  torch::optim::SGD optimizer(second->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  TrainState before, after, other;
  before.add("model", *first);
  before.option("anything", true);
  before.advance({});
  after.add("model", *second);
  after.add("optimizer", optimizer);
  other.add("model", *wide);
  const auto snapshot = stage(before);
  const at::Tensor stream = at::detail::getDefaultCPUGenerator().get_state();
  at::rand({1});
  const at::Tensor moved = at::detail::getDefaultCPUGenerator().get_state();
  after.load(*snapshot, {.weights_only = true});
  EXPECT_TRUE(at::equal(second->running_mean, first->running_mean));
  EXPECT_EQ(after.step(), 0);
  EXPECT_TRUE(at::equal(at::detail::getDefaultCPUGenerator().get_state(), moved));
  EXPECT_FALSE(at::equal(stream, moved));
  EXPECT_THAT(message_of<RefusedError>([&] { other.load(*snapshot, {.weights_only = true}); }),
              HasSubstr("model/running_mean"));
}

TEST(Components, SaveAndLoadTensorsOfAnyShape) {
  Average first, second;
  first.updates = 3;
  first.mean = at::arange(6, at::kDouble).view({2, 3}).t();
  second.updates = 1;
  second.mean = at::zeros({9});
  TrainState before, after;
  before.add("average", first);
  after.add("average", second);
  const auto snapshot = stage(before);
  EXPECT_THAT(values<double>(*snapshot, "average/mean/first"), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_EQ(snapshot->attributes.find("average.comment")->role, Role::record);
  after.load(*snapshot, {});
  EXPECT_EQ(second.updates, 3);
  EXPECT_TRUE(at::equal(second.mean, first.mean));
  EXPECT_EQ(digest(after), digest(*snapshot));
}

TEST(Components, AFailingLoadLeavesEverythingAsItWas) {
  Average first, good, bad;
  first.updates = 3;
  first.mean = at::ones({2});
  good.updates = bad.updates = 7;
  good.mean = bad.mean = at::zeros({4});
  torch::nn::Linear net(2, 2), other(2, 2);
  TrainState before, after;
  Average twin = first;
  before.add("model", *net);
  before.add("good", first);
  before.add("bad", twin);
  after.add("model", *other);
  after.add("good", good);
  after.add("bad", bad);
  const auto snapshot = stage(before);
  const std::string untouched = digest(after);
  bad.fails = true;
  EXPECT_THAT(message_of<RefusedError>([&] { after.load(*snapshot, {}); }), HasSubstr("broken"));
  EXPECT_EQ(good.updates, 7);
  EXPECT_EQ(digest(after), untouched);
}

TEST(Components, MissingOnesAndMissingEntriesAreNamed) {
  Average average;
  torch::nn::Linear net(2, 2);
  TrainState with, without;
  with.add("model", *net);
  with.add("average", average);
  without.add("model", *net);
  EXPECT_THAT(message_of<RefusedError>([&] { without.load(*stage(with), {}); }),
              AllOf(HasSubstr("'average' (component) is in the checkpoint and not added here"),
                    Not(HasSubstr("decay"))));
  EXPECT_THAT(message_of<RefusedError>([&] { with.load(*stage(without), {}); }),
              HasSubstr("'average' (component) is not in the checkpoint"));
  auto snapshot = stage(with);
  snapshot->attributes.erase("average.updates");
  EXPECT_THAT(message_of<RefusedError>([&] { with.load(*snapshot, {}); }), HasSubstr("average.updates"));
}

// One that this program has and an older one had not (distributed/data_parallel.h).
struct Newcomer {
  static constexpr bool kMayBeNew = true;
  void save(StateWriter& out) const {
    out.option("chosen", std::int64_t{4});
    out.put("count", count);
    out.environment("passes", passes);
  }
  void load(const StateReader& in) { count = in.get_int("count"); }
  std::int64_t count = 1;
  std::int64_t passes = 2;
};

TEST(Components, OneThatMayBeNewBeginsFresh) {
  Newcomer first{.count = 5}, second;
  torch::nn::Linear net(2, 2);
  TrainState with, without, again;
  with.add("model", *net);
  with.add("newcomer", first);
  without.add("model", *net);
  again.add("model", *net);
  again.add("newcomer", second);
  again.load(*stage(without), {});
  EXPECT_EQ(second.count, 1);
  again.load(*stage(with), {});
  EXPECT_EQ(second.count, 5) << "where it is recorded it comes back";
  EXPECT_THAT(message_of<RefusedError>([&] { without.load(*stage(with), {}); }),
              HasSubstr("'newcomer' (component) is in the checkpoint and not added here"));
}

// A component whose number is an option or merely put.
struct Plan {
  void save(StateWriter& out) const { chosen ? out.option("steps", steps) : out.put("steps", steps); }
  void load(const StateReader& in) {
    if (!chosen) steps = in.get_int("steps");
  }
  std::int64_t steps;
  bool chosen;
};

TEST(Options, AreComparedRestoredOrOverridden) {
  const auto resume = [](Plan from, Plan to, const Overrides& overrides) {
    TrainState before, after;
    before.add("plan", from);
    after.add("plan", to);
    after.load(*stage(before), {.overrides = overrides});
    return to.steps;
  };
  EXPECT_EQ(resume({10, true}, {10, true}, {}), 10);
  EXPECT_EQ(resume({10, false}, {20, false}, {}), 10) << "put: restored";
  EXPECT_EQ(resume({10, true}, {20, false}, {}), 10) << "no option any more: restored";
  EXPECT_THAT(message_of<RefusedError>([&] {
                resume({10, false}, {20, true}, {});
              }),
              HasSubstr("plan.steps is 20 here and 10 in the checkpoint"));
  EXPECT_EQ(resume({10, true}, {20, true}, {"steps"}), 20);
  EXPECT_EQ(resume({10, true}, {20, true}, {"plan.steps"}), 20);
  EXPECT_THROW(resume({10, true}, {20, true}, {"teps"}), RefusedError);
  EXPECT_THROW(resume({10, true}, {20, true}, {""}), RefusedError);
}

// A loader as it recorded itself before, and as it does now.
struct Batches {
  void save(StateWriter& out) const {
    out.option("batch_size", before ? samples : samples * passes);
    before ? out.option("accumulation", passes) : out.note("accumulation", passes);
  }
  void load(const StateReader&) {}
  std::int64_t samples;  // of a pass
  std::int64_t passes;
  bool before;
};

TEST(Options, ABatchSizeOfBeforeCountedOnePass) {
  const auto refusal = [](Batches from, Batches to) {
    TrainState before, after;
    before.add("data", from);
    after.add("data", to);
    try {
      after.load(*stage(before), {});
      return std::string();
    } catch (const RefusedError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(refusal({32, 4, true}, {32, 4, false}), "");
  EXPECT_EQ(refusal({32, 4, true}, {128, 1, false}), "") << "otherwise divided";
  EXPECT_THAT(refusal({32, 4, true}, {32, 1, false}),
              HasSubstr("data.batch_size is 32 here and 128 in the checkpoint"));
  EXPECT_EQ(refusal({32, 1, true}, {32, 1, false}), "");
  EXPECT_EQ(refusal({32, 4, false}, {64, 2, false}), "") << "both of today";
  EXPECT_THAT(refusal({32, 4, false}, {32, 1, false}),
              HasSubstr("data.batch_size is 32 here and 128 in the checkpoint"));
  // A component that still has both as options compares them as they are.
  EXPECT_EQ(refusal({32, 4, true}, {32, 4, true}), "");
  EXPECT_THAT(refusal({32, 4, true}, {128, 1, true}), HasSubstr("data.accumulation is 1 here and 4"));
}

TEST(Options, OfTheRunMustBeOnBothSides) {
  TrainState with, without;
  with.option("precision", std::string("bf16"));
  EXPECT_THAT(message_of<RefusedError>([&] { without.load(*stage(with), {}); }),
              HasSubstr("precision was \"bf16\" and is not set here"));
  EXPECT_THAT(message_of<RefusedError>([&] { with.load(*stage(without), {}); }),
              HasSubstr("precision is \"bf16\" here and was not recorded"));
  with.load(*stage(without), {.overrides = {"precision"}});
  EXPECT_THROW(with.option("precision", true), UsageError);
  EXPECT_THROW(with.option("step", true), UsageError);
  EXPECT_THROW(with.option("environment.host", true), UsageError);
}

TEST(Names, MustBeNewAndPlain) {
  Average average;
  TrainState state;
  state.add("average", average);
  for (const char* name : {"average", "", "a/b", "a.b", "rng", "run", "step", "meta", "a\nb"}) {
    EXPECT_THROW(state.add(name, average), UsageError) << name;
  }
}

TEST(Streams, AreRestoredLast) {
  struct Thirsty {  // draws numbers while it loads
    void save(StateWriter& /*out*/) const {}
    void load(const StateReader& /*in*/) { at::rand({100}); }
  } thirsty;
  at::Generator own = at::detail::createCPUGenerator(5);
  TrainState state;
  state.add("thirsty", thirsty);
  state.add_generator("noise", own);
  EXPECT_THROW(state.add_generator("cpu", own), UsageError);
  torch::manual_seed(3);
  at::randn({3});  // a cached second normal value is part of the stream
  at::randn({3}, own);
  const auto snapshot = stage(state);
  EXPECT_EQ(snapshot->find("rng/cpu")->size(), 5056U);
  EXPECT_EQ(snapshot->find("rng/noise")->size(), 5056U);
  const at::Tensor expected = at::randn({5}), expected_own = at::randn({5}, own);
  state.load(*snapshot, {});
  EXPECT_TRUE(at::equal(at::randn({5}), expected));
  EXPECT_TRUE(at::equal(at::randn({5}, own), expected_own));

  auto broken = stage(state);
  const auto index = broken->layout->find("rng/noise").value();
  std::fill_n(broken->layout->slot(index, broken->arena->bytes()).begin(), 5056, std::byte{0xff});
  const at::Tensor before = own.get_state();
  EXPECT_THAT(message_of<RefusedError>([&] { state.load(*broken, {}); }), HasSubstr("rng/noise"));
  EXPECT_TRUE(at::equal(own.get_state(), before));
}

struct Source {
  void save(StateWriter& out) const { out.put("samples", at.samples); }
  void load(const StateReader& in) { at = {0, in.get_int("samples")}; }
  void applied(const Cursor& cursor) { at = cursor; }
  void applied_all_delivered() { at.samples += 10; }
  Cursor cursor() const { return at; }
  Cursor at;
};

TEST(Counters, FollowTheData) {
  Source source;
  TrainState state;
  state.add("data", source);
  state.advance({});
  EXPECT_EQ(state.cursor(), (Cursor{0, 10}));
  state.advance({.applied = Cursor{2, 3}});
  EXPECT_EQ(source.at, (Cursor{2, 3}));
  EXPECT_EQ(state.step(), 2);
  const auto snapshot = stage(state);
  EXPECT_EQ(snapshot->attributes.get_int("step"), 2);
  state.advance({.applied = Cursor{2, 9}});
  EXPECT_NE(digest(state), digest(*snapshot));
  state.load(*snapshot, {});
  EXPECT_EQ(state.step(), 2);
  EXPECT_EQ(state.cursor(), (Cursor{2, 3}));
  EXPECT_EQ(digest(state), digest(*snapshot));
}

// A schedule of the program's own: its rates follow from the count alone.
struct Halving final : torch::optim::LRScheduler {
  explicit Halving(torch::optim::Optimizer& optimizer) : LRScheduler(optimizer) {}
  std::vector<double> get_lrs() override { return {1.0 / (1 << (step_count_ / 2))}; }
};
// One that knows how to save itself.
struct Learned final : torch::optim::LRScheduler {
  explicit Learned(torch::optim::Optimizer& optimizer) : LRScheduler(optimizer) {}
  std::vector<double> get_lrs() override { return {rate /= 3}; }
  void save(StateWriter& out) const { out.put("rate", rate); }
  void load(const StateReader& in) { rate = in.get_double("rate"); }
  double rate = 1;
};

template <class Scheduler>
struct Scheduled {
  template <class... Options>
  explicit Scheduled(Options... options) : schedule(optimizer, options...) {
    state.add("model", *net);
    state.add("optimizer", optimizer);
    state.add("schedule", schedule);
  }
  std::vector<double> train(int steps) {
    std::vector<double> rates;
    for (int i = 0; i < steps; ++i) {
      optimizer.zero_grad();
      net->forward(at::ones({1, 2})).sum().backward();
      optimizer.step();
      schedule.step();
      rates.push_back(optimizer.param_groups()[0].options().get_lr());
    }
    return rates;
  }
  torch::nn::Linear net{2, 1};
  torch::optim::SGD optimizer{net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)};
  Scheduler schedule;
  TrainState state;
};

template <class Scheduler, class... Options>
void expect_that_it_continues(Options... options) {
  const std::vector<double> straight = Scheduled<Scheduler>(options...).train(12);
  for (int stop = 0; stop <= 12; ++stop) {
    Scheduled<Scheduler> before(options...), after(options...);
    std::vector<double> rates = before.train(stop);
    after.state.load(*stage(before.state), {});
    for (const double rate : after.train(12 - stop)) rates.push_back(rate);
    EXPECT_EQ(rates, straight) << "stopped after " << stop;
  }
}

TEST(SchedulesOfLibTorch, ContinueAtTheirStep) {
  expect_that_it_continues<torch::optim::StepLR>(5U, 0.5);
  expect_that_it_continues<Halving>();
  expect_that_it_continues<Learned>();
}

TEST(SchedulesOfLibTorch, AreComparedByTheirClass) {
  Scheduled<torch::optim::StepLR> before(5U, 0.5);
  before.train(3);
  const auto snapshot = stage(before.state);
  EXPECT_EQ(snapshot->attributes.get_int("schedule.steps"), 3);
  Scheduled<Halving> other;
  EXPECT_THAT(message_of<RefusedError>([&] { other.state.load(*snapshot, {}); }),
              AllOf(HasSubstr("schedule.type is "), HasSubstr("torch::optim::StepLR"),
                    HasSubstr(" in the checkpoint")));
  Attributes wrong = snapshot->attributes;
  wrong.set("schedule.steps", std::int64_t{1} << 32);
  Snapshot changed = *snapshot;
  changed.attributes = wrong;
  Scheduled<torch::optim::StepLR> after(5U, 0.5);
  EXPECT_THAT(message_of<RefusedError>([&] { after.state.load(changed, {}); }),
              HasSubstr("steps of schedule 'schedule'"));
}

TEST(Environment, IsRecordedAndDecidesNothing) {
  TrainState state;
  const Attributes attributes = state.attributes();
  for (const char* name : {"environment.libtorch", "environment.threads", "environment.device",
                           "environment.holdfast", "environment.processor"}) {
    ASSERT_TRUE(attributes.has(name)) << name;
    EXPECT_EQ(attributes.find(name)->role, Role::record) << name;
  }
  EXPECT_EQ(attributes.get_string("environment.device"), "cpu");
}

TEST(Environment, AComponentsOwnIsThereToo) {
  Newcomer first, second{.passes = 3};
  TrainState before, after;
  before.add("newcomer", first);
  after.add("newcomer", second);
  EXPECT_EQ(before.attributes().get_int("environment.newcomer.passes"), 2);
  EXPECT_EQ(before.attributes().find("environment.newcomer.passes")->role, Role::record);
  EXPECT_NO_THROW(after.load(*stage(before), {})) << "no reason to refuse";
}

}}  // namespace holdfast::test
