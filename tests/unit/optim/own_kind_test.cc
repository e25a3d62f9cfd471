// An optimizer describes its own options and slots, and a checkpoint has them under its name.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <torch/arg.h>
#include <torch/nn/modules/linear.h>

#include <set>
#include <string>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/format/internal/import/optimizer_import.h"
#include "holdfast/optim/lamb.h"
#include "holdfast/optim/make_optimizer.h"
#include "holdfast/state/optimizer_fields.h"
#include "unit/optim/fused_cases.h"
#include "unit/state/staging.h"

namespace holdfast::test { namespace {

using ::testing::AllOf;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

struct LionOptions : to::OptimizerCloneableOptions<LionOptions> {
  double get_lr() const override { return lr(); }
  void set_lr(double rate) override { lr(rate); }
  TORCH_ARG(double, lr) = 0.1;
  TORCH_ARG(double, beta) = 0.9;
};
struct LionState : to::OptimizerCloneableParamState<LionState> {
  TORCH_ARG(std::int64_t, step) = 0;
  TORCH_ARG(at::Tensor, velocity);
};
struct LionFields {
  static constexpr char kName[] = "Lion";
  using Options = LionOptions;
  using State = LionState;
  static void options(Options& of, const auto& visit) {
    visit("lr", of.lr());
    visit("beta", of.beta());
  }
  static void slots(State& of, const auto& visit) { visit("velocity", of.velocity()); }
};

class Lion : public to::Optimizer, public OwnOptimizer {
 public:
  Lion(std::vector<at::Tensor> parameters, LionOptions options)
      : Optimizer({to::OptimizerParamGroup(std::move(parameters))}, std::make_unique<LionOptions>(options)) {}
  at::Tensor step(LossClosure = nullptr) override {
    const at::NoGradGuard no_grad;
    for (auto& group : param_groups()) {
      const auto& options = static_cast<const LionOptions&>(group.options());
      for (at::Tensor& parameter : group.params()) {
        auto& kept = state()[parameter.unsafeGetTensorImpl()];
        if (!kept) kept = std::make_unique<LionState>();
        auto& slots = static_cast<LionState&>(*kept);
        if (!slots.velocity().defined()) slots.velocity(at::zeros_like(parameter));
        slots.velocity().mul_(options.beta()).add_(parameter.grad());
        slots.step(slots.step() + 1);
        parameter.sub_(slots.velocity() * options.lr() * static_cast<double>(slots.step()));
      }
    }
    return {};
  }
  const OptimizerKind& kind() const override { return kKindOf<LionFields>; }
  const std::type_info& described() const override { return typeid(Lion); }
  bool maximizes() const override { return false; }
  void settle() override {}
  void share(const WholeTensors*) override {}
};

template <class Optimizer, class Options>
struct Training {
  explicit Training(const Options& options) : net(made()), optimizer(net->parameters(), options) {
    state.add("model", *net);
    state.add("optimizer", optimizer);
  }
  static torch::nn::Linear made() {
    torch::manual_seed(5);
    return torch::nn::Linear(3, 2);
  }
  void train(int steps) {
    for (int i = 0; i < steps; ++i) {
      for (const at::Tensor& parameter : net->parameters())
        parameter.mutable_grad() = parameter.detach() * 0.1;
      optimizer.step();
    }
  }
  torch::nn::Linear net;
  Optimizer optimizer;
  TrainState state;
};
using LionRun = Training<Lion, LionOptions>;
using LambRun = Training<Lamb, LambOptions>;

TEST(OwnKind, IsSavedAndLoadedByItsOwnDescription) {
  LionRun straight{LionOptions()}, first{LionOptions()}, second{LionOptions()};
  straight.train(5);
  first.train(3);
  const auto snapshot = stage(first.state);
  EXPECT_EQ(snapshot->attributes.get_string("optimizer.type"), "Lion");
  EXPECT_EQ(snapshot->attributes.get_double("optimizer.group.0.beta"), 0.9);
  EXPECT_TRUE(holds(*snapshot, "optimizer/velocity/weight"));
  second.state.check(snapshot->layout->tensors(), snapshot->attributes, {});
  second.state.load(*snapshot, {});
  second.train(2);
  EXPECT_EQ(digest(second.state), digest(straight.state));
}

TEST(OwnKind, IsRefusedByNameInACheckpointOfAnother) {
  LionRun lion{LionOptions()};
  LambRun lamb{LambOptions(0.1)};
  lion.train(1);
  lamb.train(1);
  EXPECT_THAT(message_of<RefusedError>([&] { lamb.state.load(*stage(lion.state), {}); }),
              HasSubstr("'optimizer' is LAMB here and Lion in the checkpoint"));
  EXPECT_THAT(message_of<RefusedError>([&] { lion.state.load(*stage(lamb.state), {}); }),
              HasSubstr("'optimizer' is Lion here and LAMB in the checkpoint"));
}

TEST(OwnKind, WithOptionsOfAnotherIsRefusedByItsName) {
  struct Mixed : Lion {
    using Lion::Lion;
    const std::type_info& described() const override { return typeid(Mixed); }
  };
  Training<Mixed, LionOptions> mixed{LionOptions()};
  mixed.optimizer.param_groups()[0].set_options(std::make_unique<LambOptions>(0.1));
  EXPECT_THAT(message_of<UsageError>([&] { stage(mixed.state); }),
              AllOf(HasSubstr("'optimizer'"), HasSubstr("options of another optimizer")));
}

// `holdfast import --like` has no Torch, and a table of its own.
TEST(OwnKind, TheImportKnowsTheSlotsOfEveryKind) {
  std::vector<std::unique_ptr<to::Optimizer>> optimizers;
  const torch::nn::Linear net(3, 2);
  for (const std::string& name : optimizer_names()) optimizers.push_back(make_optimizer(name, *net, {}));
  std::set<const OptimizerKind*> kinds = torch_kinds();
  for (const auto& optimizer : optimizers) kinds.insert(kind_of(*optimizer));
  std::size_t found = 0;
  for (const OptimizerKind* const kind : kinds) {
    if (kind->one_state) continue;
    SCOPED_TRACE(kind->name);
    std::vector<std::string_view> slots, imported;
    const auto state = kind->make_state();
    kind->slots(*state, [&](const char* slot, at::Tensor&) { slots.emplace_back(slot); });
    kind->set_step(*state, 7);
    for (const internal::KindOfOptimizer& row : internal::kinds_of_optimizers()) {
      if (row.type != kind->name) continue;
      ++found;
      for (const internal::SlotOfKind& slot : row.slots) {
        if (!slot.name.empty()) imported.push_back(slot.name);
      }
      EXPECT_EQ(row.counts, kind->step(*state) == 7);
    }
    EXPECT_THAT(imported, ElementsAreArray(slots)) << "format/internal/import/optimizer_import.cc";
  }
  EXPECT_EQ(found, internal::kinds_of_optimizers().size());
}

}}  // namespace holdfast::test
