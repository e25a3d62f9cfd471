// Checkpoints of fused optimizers and of LAMB: interchangeable with torch::optim's, bit for bit, and refused
// where they say something else.
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include "holdfast/base/error.h"
#include "holdfast/optim/fused_adam.h"
#include "holdfast/optim/fused_sgd.h"
#include "holdfast/optim/lamb.h"
#include "unit/optim/fused_cases.h"
#include "unit/state/staging.h"

namespace holdfast::test { namespace {

using ::testing::HasSubstr;

// Some updates by one, the rest by the other.
class Interchange : public ::testing::TestWithParam<const char*> {};
TEST_P(Interchange, CheckpointsGoOnUnderTheOther) {
  const std::string fused = GetParam(), torchs = "torch-" + fused;
  for (const auto& [first, second] : {std::pair(torchs, fused), std::pair(fused, torchs)}) {
    Program before(first);
    before.train(4);
    const auto snapshot = stage(*before.state);
    Program same(first), other(second);
    for (Program* program : {&same, &other}) {
      program->state->check(snapshot->layout->tensors(), snapshot->attributes, {});
      program->state->load(*snapshot, {});
      EXPECT_EQ(digest(*program->state), digest(*snapshot)) << second;
      program->train(4);
    }
    if (fused == "sgd") {
      EXPECT_EQ(digest(*other.state), digest(*same.state)) << "to the last bit";
    }
    const Tensors one = same.net->parameters(), two = other.net->parameters();
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i].allclose(two[i], 1e-5, 1e-6));
  }
}
INSTANTIATE_TEST_SUITE_P(All, Interchange, ::testing::Values("sgd", "adam", "adamw"));

TEST(Lamb, ResumesBitByBit) {
  const OptimizerSettings settings = {.lr = 0.01, .weight_decay = 0.1, .decay_all = false};
  Program straight("lamb", settings);
  straight.train(8);
  Program second("lamb", settings), first("lamb", settings);
  first.train(4);
  const auto snapshot = stage(*first.state);
  EXPECT_EQ(snapshot->attributes.get_string("optimizer.type"), "LAMB");
  EXPECT_TRUE(holds(*snapshot, "optimizer/exp_avg/0.weight"));
  second.state->check(snapshot->layout->tensors(), snapshot->attributes, {});
  second.state->load(*snapshot, {});
  second.train(4);
  EXPECT_EQ(digest(*second.state), digest(*straight.state));
  Program adam("adam", settings);
  EXPECT_THAT(message_of<RefusedError>([&] { adam.state->load(*snapshot, {}); }),
              HasSubstr("LAMB in the checkpoint"));
}

TEST(Lamb, VariantsAreRecordedWhereThereAreAny) {
  struct Run {
    explicit Run(const LambOptions& options) : optimizer(net->parameters(), options) {
      state.add("model", *net);
      state.add("optimizer", optimizer);
    }
    torch::nn::Linear net{3, 2};
    Lamb optimizer;
    TrainState state;
  };
  Run plain(LambOptions(0.1)), apex(LambOptions(0.1).max_grad_norm(1));
  const auto old = stage(plain.state), clipped = stage(apex.state);
  for (const char* option :
       {"max_grad_norm", "grad_averaging", "bias_correction", "decoupled", "most_norm"}) {
    EXPECT_FALSE(old->attributes.has(std::string("optimizer.group.0.") + option)) << option;
  }
  EXPECT_TRUE(old->attributes.has("optimizer.group.0.adapt_all"));
  EXPECT_EQ(clipped->attributes.get_double("optimizer.group.0.max_grad_norm"), 1);
  const auto refused = [](Run& run, const Snapshot& from) {
    return message_of<RefusedError>([&] { run.state.check(from.layout->tensors(), from.attributes, {}); });
  };
  EXPECT_THAT(refused(apex, *old), HasSubstr("optimizer.group.0.max_grad_norm"));
  EXPECT_THAT(refused(plain, *clipped), HasSubstr("optimizer.group.0.max_grad_norm"));
  for (const auto& [first, snapshot] : {std::pair(&plain, old), std::pair(&apex, clipped)}) {
    first->state.check(snapshot->layout->tensors(), snapshot->attributes, {});
    first->state.load(*snapshot, {});
    EXPECT_EQ(digest(first->state), digest(*snapshot));
  }
  const auto limit = [](Run& run) -> LambOptions& {
    return static_cast<LambOptions&>(run.optimizer.param_groups()[0].options());
  };
  limit(apex).max_grad_norm(0.5);  // chosen by one run, changed since, and overridden in another
  plain.state.load(*stage(apex.state), {.overrides = {"max_grad_norm"}});
  EXPECT_EQ(limit(plain).max_grad_norm(), 0);
}

// Counts on the device reach the checkpoint, and begin anew from one.
TEST(FusedAdam, CountsOnADeviceFollowCheckpoints) {
  const auto deciding = [](Program& program) {
    program.use(std::make_unique<Deciding<FusedAdam>>(program.net->parameters(), to::AdamOptions(0.125)));
  };
  Program one("adam"), other("adam");
  deciding(one);
  deciding(other);
  one.train(5);
  const auto snapshot = stage(*one.state);
  EXPECT_EQ(snapshot->attributes.get_ints("optimizer.group.0.steps"), std::vector<std::int64_t>(4, 5));
  other.train(2);
  other.state->load(*snapshot, {});
  torch::manual_seed(8);
  one.train(3);
  torch::manual_seed(8);
  other.train(3);
  EXPECT_EQ(stage(*other.state)->attributes.get_ints("optimizer.group.0.steps"),
            std::vector<std::int64_t>(4, 8));
  const Tensors left = one.net->parameters(), right = other.net->parameters();
  for (std::size_t i = 0; i < left.size(); ++i) EXPECT_TRUE(left[i].equal(right[i]));
}

// In a checkpoint's eyes a derived class is another optimizer, until it says that it is not.
TEST(FusedSgd, ADerivedClassIsRefusedWithItsUnknownState) {
  struct Own final : FusedSgd {
    using FusedSgd::FusedSgd;
    std::int64_t calls = 0;
  };
  Program program("sgd");
  EXPECT_THAT(message_of<UsageError>([&] {
                program.use(std::make_unique<Own>(program.net->parameters(), to::SGDOptions(0.1)));
              }),
              HasSubstr("Own"));
  program.use(std::make_unique<Deciding<FusedSgd>>(program.net->parameters(), to::SGDOptions(0.1)));
}

// Adam's bits depend on whose kernels computed them; plain SGD's on a CPU do not.
TEST(Kernels, AreRecordedWhereTheBitsDependOnThem) {
  const auto recorded = [](const char* name) {
    const Attributes attributes = Program(name).state->attributes();
    const auto* const kernels = attributes.find("environment.optimizer.kernels");
    return kernels ? std::get<std::string>(kernels->value) : std::string("nothing");
  };
  EXPECT_EQ(recorded("adam"), "fused");
  EXPECT_EQ(recorded("torch-adam"), "torch::optim");
  EXPECT_EQ(recorded("adamw"), "fused");
  EXPECT_EQ(recorded("sgd"), "nothing");
  EXPECT_EQ(recorded("torch-sgd"), "nothing");
}

}}  // namespace holdfast::test
