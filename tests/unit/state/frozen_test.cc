// Frozen weights that a checkpoint records by digest alone.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "holdfast/base/error.h"
#include "holdfast/snapshot/digested_tensors.h"
#include "holdfast/state/train_state.h"
#include "unit/state/modules.h"
#include "unit/state/staging.h"

namespace holdfast::test { namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

constexpr ModuleOptions kDigest{.frozen = Frozen::digest};

// A frozen trunk of two tensors and a head that is trained, as a start of the program makes them.
struct Tuner {
  explicit Tuner(const ModuleOptions& options = kDigest, float trunk = 3) {
    bag.parameter("trunk_weight", at::full({300, 101}, trunk), false);
    bag.parameter("trunk_bias", at::full({7}, trunk), false);
    bag.parameter("head", at::zeros({5}));
    norm = bag.child("norm", torch::nn::BatchNorm1d(3));
    state.add("model", bag, options);
  }
  at::Tensor operator[](const std::string& name) { return bag.named_parameters(true)[name]; }
  std::vector<std::string> digested() {
    std::vector<std::string> names;
    for (const DigestedTensor& tensor : digested_tensors(state.attributes()))
      names.push_back(tensor.spec.name);
    return names;
  }
  void train() {
    const at::NoGradGuard no_grad;
    bag.named_parameters()["head"].add_(1);
    state.advance({});
  }
  Bag bag;
  torch::nn::BatchNorm1d norm{nullptr};
  TrainState state;
};

TEST(FrozenWeights, AreStoredUnlessAsked) {
  Tuner program(ModuleOptions{});
  EXPECT_THAT(names_of(program.state), testing::Contains("model/trunk_weight"));
  EXPECT_THAT(program.digested(), IsEmpty());
}

TEST(FrozenWeights, AreRecordedByDigestAlone) {
  Tuner program;
  program.train();
  const auto saved = stage(program.state);
  EXPECT_FALSE(holds(*saved, "model/trunk_weight"));
  EXPECT_FALSE(holds(*saved, "model/trunk_bias"));
  EXPECT_TRUE(holds(*saved, "model/head"));
  EXPECT_TRUE(holds(*saved, "model/norm.running_mean")) << "a buffer, and nobody asked";
  const auto found = digested_tensors(saved->attributes);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[1].spec, (TensorSpec{"model/trunk_weight", DType::float32, {300, 101}}));
  Tuner stores(ModuleOptions{});
  const auto bytes = stage(stores.state);
  EXPECT_EQ(found[1].digest, tensor_digest(bytes->find("model/trunk_weight").value()));

  Tuner next;
  next.state.load(*saved, {});
  EXPECT_EQ(next.bag.named_parameters()["head"].sum().item<float>(), 5);
  EXPECT_EQ(next.state.step(), 1);
  EXPECT_EQ(digest(next.state), digest(*saved));
}

TEST(FrozenWeights, OtherBytesAreRefusedByNameAndNothingIsTouched) {
  Tuner program;
  program.train();
  const auto saved = stage(program.state);
  Tuner other(kDigest, 4);
  const std::string refused = message_of<RefusedError>([&] { other.state.load(*saved, {}); });
  EXPECT_THAT(refused, AllOf(HasSubstr("model/trunk_bias has other bytes here (1 more differ)"),
                             HasSubstr("Load the same frozen weights before resume()")));
  EXPECT_EQ(other.bag.named_parameters()["head"].sum().item<float>(), 0);
  EXPECT_THAT(message_of<RefusedError>([&] { other.state.load(*saved, {.weights_only = true}); }),
              HasSubstr("model/trunk_bias has other bytes here"));
  // A difference in one element of one tensor.
  Tuner close;
  const at::NoGradGuard no_grad;
  close["trunk_weight"][299][100] = 3.5;
  const std::string one = message_of<RefusedError>([&] { close.state.load(*saved, {}); });
  EXPECT_THAT(one,
              AllOf(HasSubstr("model/trunk_weight has other bytes here"), Not(HasSubstr("more differ"))));
}

TEST(FrozenWeights, OfAnotherShapeAreRefusedLikeStoredOnes) {
  Tuner program;
  const auto saved = stage(program.state);
  Bag other;
  other.parameter("trunk_weight", at::full({300, 100}, 3.0), false);
  TrainState state;
  state.add("model", other, kDigest);
  EXPECT_THAT(message_of<RefusedError>([&] { state.check(saved->layout->tensors(), saved->attributes, {}); }),
              AllOf(HasSubstr("model/trunk_weight is float32 [300, 100] here and float32 [300, 101]"),
                    HasSubstr("model/trunk_bias (float32 [7]) is in the checkpoint and not in this model")));
}

TEST(FrozenWeights, ThatThawAreStoredAndComeBack) {
  Tuner program;
  program.train();
  program["trunk_weight"].requires_grad_(true);
  const auto thawed = stage(program.state);
  EXPECT_TRUE(holds(*thawed, "model/trunk_weight"));
  EXPECT_THAT(program.digested(), ElementsAre("model/trunk_bias"));
  {
    const at::NoGradGuard no_grad;
    program["trunk_weight"].add_(1);
  }
  program.train();
  const auto trained = stage(program.state);
  // The next start freezes it at first, as this one did.
  Tuner next;
  next.state.load(*trained, {});
  EXPECT_TRUE(next["trunk_weight"].requires_grad());
  EXPECT_EQ(next["trunk_weight"][0][0].item<float>(), 4);
  EXPECT_EQ(digest(next.state), digest(*trained));
  // Frozen again: no start has these bytes, so they stay stored, in each life.
  for (Tuner* each : {&program, &next}) {
    (*each)["trunk_weight"].requires_grad_(false);
    EXPECT_THAT(each->digested(), ElementsAre("model/trunk_bias"));
  }
  EXPECT_EQ(digest(next.state), digest(program.state));
  Tuner last;
  last.state.load(*stage(program.state), {});
  EXPECT_FALSE(last["trunk_weight"].requires_grad());
  EXPECT_EQ(last["trunk_weight"][0][0].item<float>(), 4);
}

TEST(FrozenWeights, ThatFreezeLaterChangeSidesIfTheirBytesAreThoseOfTheStart) {
  Tuner program;
  static_cast<void>(stage(program.state));
  program["head"].requires_grad_(false);
  EXPECT_THAT(program.digested(),
              UnorderedElementsAre("model/head", "model/trunk_bias", "model/trunk_weight"));
  const auto saved = stage(program.state);
  // This start trains it until it is told otherwise.
  Tuner next;
  next.state.load(*saved, {});
  EXPECT_FALSE(next["head"].requires_grad());
  EXPECT_EQ(digest(next.state), digest(*saved));
}

TEST(FrozenWeights, ThatAStartThawsAreComparedAndFlaggedAsRecorded) {
  Tuner program;
  const auto saved = stage(program.state);
  Tuner next;
  next["trunk_bias"].requires_grad_(true);
  next.state.load(*saved, {});
  EXPECT_FALSE(next["trunk_bias"].requires_grad());
}

TEST(FrozenWeights, ThatAFileStoresAreLoadedAsStored) {
  Tuner stores(ModuleOptions{}, 8);
  const auto saved = stage(stores.state);
  Tuner next;  // its weights are others, and the file's count
  next.state.load(*saved, {});
  EXPECT_EQ(next["trunk_bias"][0].item<float>(), 8);
  EXPECT_THAT(next.digested(), IsEmpty()) << "no start would have them";
  Tuner same(kDigest, 8);
  same.state.load(*saved, {});
  EXPECT_EQ(same.digested().size(), 2u);
}

TEST(FrozenWeights, AModuleWithoutTheOptionTakesSuchAFileToo) {
  Tuner program;
  const auto saved = stage(program.state);
  Tuner stores(ModuleOptions{});
  stores.state.load(*saved, {});
  Tuner other(ModuleOptions{}, 4);
  EXPECT_THAT(message_of<RefusedError>([&] { other.state.load(*saved, {}); }), HasSubstr("has other bytes"));
}

TEST(FrozenWeights, AChangeIsSeenHoweverItWasMade) {
  const at::NoGradGuard no_grad;
  const std::vector<std::pair<const char*, std::function<void(Tuner&)>>> changes = {
      {"in place", [](Tuner& p) { p["trunk_bias"].add_(1); }},
      {"one element", [](Tuner& p) { p["trunk_bias"][3] = 9; }},
      {"a detached view", [](Tuner& p) { p["trunk_bias"].detach().mul_(2); }},
      {"other memory", [](Tuner& p) { p["trunk_bias"].set_data(at::ones({7})); }},
      {"another object", [](Tuner& p) { p.bag.replace("trunk_bias", at::ones({7})); }},
  };
  for (const auto& [name, change] : changes) {
    SCOPED_TRACE(name);
    Tuner program;
    static_cast<void>(stage(program.state));
    change(program);
    const auto saved = stage(program.state);
    EXPECT_TRUE(holds(*saved, "model/trunk_bias"));
    EXPECT_FALSE(holds(*saved, "model/trunk_weight"));
    Tuner next;
    next.state.load(*saved, {});
    EXPECT_TRUE(next["trunk_bias"].equal(program["trunk_bias"]));
    EXPECT_EQ(digest(next.state), digest(*saved));
  }
}

TEST(FrozenWeights, AChangeBehindDataPtrIsFoundWhenSomebodyLooks) {
  Tuner program;
  const std::string before = digest(program.state);
  EXPECT_THAT(program.state.changed(nullptr), IsEmpty());
  program["trunk_bias"].data_ptr<float>()[6] = -1;
  EXPECT_EQ(program.digested().size(), 2u) << "no save can see it";
  EXPECT_THAT(program.state.changed(nullptr), ElementsAre("model/trunk_bias"));
  EXPECT_THAT(program.digested(), ElementsAre("model/trunk_weight"));
  EXPECT_NE(digest(program.state), before);
}

TEST(FrozenWeights, BuffersCountIfAskedAndInEvaluation) {
  Tuner program({.frozen = Frozen::digest, .frozen_buffers = true});
  EXPECT_EQ(program.digested().size(), 2u);
  program.norm->eval();
  EXPECT_THAT(program.digested(),
              UnorderedElementsAre("model/norm.num_batches_tracked", "model/norm.running_mean",
                                   "model/norm.running_var", "model/trunk_bias", "model/trunk_weight"));
  const auto saved = stage(program.state);
  Tuner next({.frozen = Frozen::digest, .frozen_buffers = true});
  next.state.load(*saved, {});
  EXPECT_FALSE(next.norm->is_training());
  EXPECT_EQ(digest(next.state), digest(*saved));
  // Statistics that were gathered since the start are stored, in evaluation too.
  next.norm->train();
  next.norm->forward(at::randn({4, 3}));
  next.norm->eval();
  EXPECT_EQ(next.digested().size(), 2u);

  TrainState state;
  Bag bag;
  EXPECT_THAT(message_of<UsageError>([&] { state.add("model", bag, {.frozen_buffers = true}); }),
              HasSubstr("frozen_buffers needs frozen = Frozen::digest"));
}

TEST(FrozenWeights, AnEvaluationThatChangesSidesChangesNothing) {
  Tuner program({.frozen = Frozen::digest, .frozen_buffers = true});
  const auto saved = stage(program.state);
  program.bag.eval();
  EXPECT_THAT(program.state.changed(saved.get()), IsEmpty());
  const auto resting = stage(program.state);
  program.bag.train();
  EXPECT_THAT(program.state.changed(resting.get()), IsEmpty());
  const at::NoGradGuard no_grad;
  program["trunk_weight"].add_(1);
  EXPECT_THAT(program.state.changed(saved.get()), ElementsAre("model/trunk_weight"));
}

TEST(FrozenWeights, MoveAndChangeTheirLayoutWithoutBeingStored) {
  Tuner program;
  const auto saved = stage(program.state);
  {
    const at::NoGradGuard no_grad;
    auto weight = program["trunk_weight"];
    weight.set_data(weight.t().contiguous().t());
  }
  const auto turned = stage(program.state);
  EXPECT_FALSE(holds(*turned, "model/trunk_weight"));
  Tuner next;
  next.state.load(*turned, {});
  EXPECT_EQ(next["trunk_weight"].strides(), program["trunk_weight"].strides());
  EXPECT_TRUE(next["trunk_weight"].equal(program["trunk_weight"]));
  EXPECT_EQ(digest(next.state), digest(*turned));
}

TEST(FrozenWeights, TheFormStaysTheSameWhenSidesChange) {
  Tuner program;
  const auto form = program.state.hold(Hold::form);
  static_cast<void>(stage(program.state));
  program["trunk_weight"].requires_grad_(true);
  program.train();
  EXPECT_TRUE(holds(*stage(program.state), "model/trunk_weight"));
  program["trunk_weight"].requires_grad_(false);
  EXPECT_FALSE(holds(*stage(program.state), "model/trunk_weight"));
}

TEST(FrozenWeights, LateAndEarlyPartsPassThemOver) {
  Tuner program;
  torch::optim::SGD optimizer(program.bag.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  program.state.add("optimizer", optimizer);
  program["head"].sum().backward();
  optimizer.step();
  program.train();
  const auto whole = stage(program.state);
  const auto parts = empty_snapshot(program.state);
  program.state.copy(*parts->layout, parts->arena->bytes(), Part::early);
  const auto late = program.state.copy(*parts->layout, parts->arena->bytes(), Part::late);
  late->run();
  parts->attributes = program.state.attributes();
  EXPECT_EQ(digest(*parts), digest(*whole));
}

TEST(DigestedTensors, MalformedOnesAreRefusedByName) {
  const std::string hex(32, 'a');
  for (const char* text : {"", "float32", "float32 [3]", "float33 [3] HEX", "float32 3 HEX",
                           "float32 [3, ] HEX", "float32 [3 4] HEX", "float32 [-1] HEX", "float32 [3] 12",
                           "float32 [3]  HEX", "float32 [9223372036854775807, 9223372036854775807] HEX"}) {
    SCOPED_TRACE(text);
    std::string value = text;
    if (value.ends_with("HEX")) value.replace(value.size() - 3, 3, hex);
    Attributes attributes;
    attributes.set("state.parts", std::vector<std::string>{"module model"}, Role::record);
    attributes.set("model.digest.w", value);
    EXPECT_THAT(message_of<RefusedError>([&] { digested_tensors(attributes); }),
                testing::AnyOf(HasSubstr("model.digest.w"), HasSubstr("model/w")));
  }
  Attributes attributes;
  attributes.set("average.digest.w", std::string("a component's own"));
  attributes.set("state.parts", std::vector<std::string>{"component average"}, Role::record);
  EXPECT_THAT(digested_tensors(attributes), IsEmpty());
  put_digested({{"model/scalar", DType::int64, {}}, tensor_digest({})}, attributes);
  attributes.set("state.parts", std::vector<std::string>{"module model"}, Role::record);
  ASSERT_EQ(digested_tensors(attributes).size(), 1u);
  EXPECT_EQ(digested_tensors(attributes)[0].spec, (TensorSpec{"model/scalar", DType::int64, {}}));
}

}}  // namespace holdfast::test
