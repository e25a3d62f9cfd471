// Values are those of torch.optim.lr_scheduler 2.11 with base rate 1 (SGD), printed by its get_last_lr().
#include "holdfast/optim/schedule.h"

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "holdfast/base/error.h"
#include "unit/data/memory_state.h"

namespace holdfast { namespace {

using ::testing::HasSubstr;

struct Row {
  std::int64_t step;
  double factor;
};

void expect_rows(const RatePlan& plan, const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    EXPECT_NEAR(plan.factor(row.step), row.factor, 1e-12) << plan.text() << " at " << row.step;
  }
}

TEST(RatePlan, ConstantIsTheSameAtEveryStep) {
  expect_rows(RatePlan::constant(0.5), {{0, 0.5}, {1'000'000, 0.5}});
}

TEST(RatePlan, StepLR) {  // StepLR(step_size=3, gamma=0.5)
  expect_rows(RatePlan::step(3, 0.5), {{0, 1}, {2, 1}, {3, 0.5}, {5, 0.5}, {6, 0.25}, {9, 0.125}});
}

TEST(RatePlan, MultiStepLR) {  // MultiStepLR(milestones=[2, 5, 5, 8], gamma=0.1)
  expect_rows(RatePlan::multi_step({2, 5, 5, 8}, 0.1),
              {{0, 1}, {1, 1}, {2, 0.1}, {4, 0.1}, {5, 0.001}, {7, 0.001}, {8, 0.0001}, {100, 0.0001}});
}

TEST(RatePlan, LinearLR) {  // LinearLR(start_factor=0.25, end_factor=1, total_iters=4)
  expect_rows(RatePlan::linear(4, 0.25, 1),
              {{0, 0.25}, {1, 0.4375}, {2, 0.625}, {3, 0.8125}, {4, 1}, {9, 1}});
}

TEST(RatePlan, CosineAnnealingLR) {  // CosineAnnealingLR(T_max=10, eta_min=0.01)
  expect_rows(RatePlan::cosine(10, 0.01), {{0, 1},
                                           {1, 0.9757729755661011},
                                           {3, 0.7959536998847743},
                                           {5, 0.505},
                                           {8, 0.10453658778440106},
                                           {9, 0.034227024433899},
                                           {10, 0.01},
                                           {50, 0.01}});
}

TEST(RatePlan, OneCycleLR) {  // OneCycleLR(max_lr=1, total_steps=10): peak at step 2
  expect_rows(RatePlan::one_cycle(10), {{0, 0.04},
                                        {1, 0.52},
                                        {2, 1},
                                        {3, 0.9504846320134737},
                                        {5, 0.6112620219362892},
                                        {6, 0.38874197806371076},
                                        {8, 0.0495193679865262},
                                        {9, 4e-06},
                                        {20, 4e-06}});
}

TEST(RatePlan, WarmupThenAnything) {
  // LinearLR(start_factor=0.1, total_iters=5), then CosineAnnealingLR(T_max=10) from step 5 on.
  expect_rows(RatePlan::warmup(5, RatePlan::cosine(10), 0.1),
              {{0, 0.1}, {1, 0.28}, {4, 0.82}, {5, 1}, {10, 0.5}, {15, 0}, {99, 0}});
  // The default start divides the way up evenly: 1/4, 2/4, 3/4, 1.
  expect_rows(RatePlan::warmup(3, RatePlan::constant()), {{0, 0.25}, {1, 0.5}, {2, 0.75}, {3, 1}, {4, 1}});
  expect_rows(RatePlan::warmup(0, RatePlan::step(1, 0.5)), {{0, 1}, {1, 0.5}});
}

// PolyWarmUpScheduler(warmup=0.2843, total_steps=7038, degree=0.5) by its own two lines, in double.
TEST(RatePlan, PolynomialOfBertLarge) {
  expect_rows(RatePlan::polynomial(7038, 0.2843), {{0, 0.000499774251970385},
                                                   {999, 0.499774251970385},
                                                   {1999, 0.99954850394077},
                                                   {2000, 0.8459824315609656},
                                                   {5000, 0.5379858873653309},
                                                   {7036, 0.011919975664203922},
                                                   {7037, 0},
                                                   {99'999, 0}});
  expect_rows(RatePlan::polynomial(1563, 0.128),
              {{0, 0.004998400511836212}, {199, 0.9996801023672425}, {200, 0.9334886992521537}});
  expect_rows(RatePlan::polynomial(4, 0, 2), {{0, 0.5625}, {1, 0.25}, {2, 0.0625}, {3, 0}});
  EXPECT_EQ(RatePlan::polynomial(4, 0.5).text(), "polynomial(steps=4, rising=0.5, power=0.5)");
  for (const auto& wrong : {std::pair(0, 0.5), std::pair(5, 1.5)}) {
    EXPECT_THROW(RatePlan::polynomial(wrong.first, wrong.second), UsageError);
  }
  EXPECT_THROW(RatePlan::polynomial(5, 0.5, 0), UsageError);
}

// ChainedScheduler of StepLR(step_size=3, gamma=0.5) and LinearLR(start_factor=0.25, total_iters=4).
TEST(RatePlan, AProductMultipliesItsFactors) {
  const RatePlan plan = RatePlan::product(RatePlan::step(3, 0.5), RatePlan::linear(4, 0.25, 1));
  expect_rows(plan, {{0, 0.25}, {2, 0.625}, {3, 0.40625}, {4, 0.5}, {6, 0.25}});
  EXPECT_EQ(plan.text(), "(step(every=3, gamma=0.5) * linear(steps=4, from=0.25, to=1))");
  EXPECT_EQ(plan.plateau_options(), nullptr);

  const RatePlan reduced = RatePlan::product(RatePlan::step(3, 0.5), RatePlan::plateau({.patience = 4}));
  ASSERT_NE(reduced.plateau_options(), nullptr);
  EXPECT_EQ(reduced.plateau_options()->patience, 4);
  EXPECT_EQ(reduced.factor(3, 0.1), 0.05);
  EXPECT_EQ(RatePlan::warmup(2, reduced).factor(5, 0.1), 0.05);
  EXPECT_THROW(RatePlan::product(RatePlan::warmup(2, reduced), RatePlan::plateau()), UsageError);
}

TEST(RatePlan, IsAPureFunction) {
  const RatePlan plan = RatePlan::warmup(7, RatePlan::one_cycle(100));
  std::vector<double> up, down;
  for (int t = 0; t < 120; ++t) up.push_back(plan.factor(t));
  for (int t = 119; t >= 0; --t) down.insert(down.begin(), plan.factor(t));
  EXPECT_EQ(up, down);
}

TEST(RatePlan, RefusesStepsAndFactorsOutOfRange) {
  EXPECT_THROW(RatePlan::step(0), UsageError);
  EXPECT_THROW(RatePlan::multi_step({5, 2}), UsageError);
  EXPECT_THROW(RatePlan::cosine(0), UsageError);
  EXPECT_THROW(RatePlan::cosine(5, 1.5), UsageError);
  EXPECT_THROW(RatePlan::one_cycle(1), UsageError);
  EXPECT_THROW(RatePlan::warmup(-1, RatePlan::constant()), UsageError);
  EXPECT_THROW(RatePlan::plateau({.factor = 1}), UsageError);
}

// ReduceLROnPlateau(factor=0.5, patience=1, cooldown=1) on these metrics.
TEST(Plateau, FollowsReduceLROnPlateau) {
  const std::vector<double> metrics = {1.0, 0.9, 0.9, 0.95, 0.9, 0.9, 0.9, 0.5, 0.6, std::nan(""), 0.6};
  const std::vector<double> rates = {1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125, 0.125};
  PlateauState state;
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    state = observe({.factor = 0.5, .patience = 1, .cooldown = 1}, state, metrics[i]);
    EXPECT_EQ(state.factor, rates[i]) << i;
  }
}

// The documents send users of LibTorch's class here.
TEST(Plateau, ReducesWhereLibTorchsClassDoes) {
  using LibTorchs = torch::optim::ReduceLROnPlateauScheduler;
  std::mt19937 random(5);
  for (const bool higher : {false, true}) {
    for (const bool relative : {false, true}) {
      // There LibTorch compares with best * threshold.
      if (higher && !relative) continue;
      for (const int cooldown : {0, 3}) {
        torch::optim::SGD theirs(std::vector<at::Tensor>{at::ones({1})}, torch::optim::SGDOptions(1));
        torch::optim::SGD ours(std::vector<at::Tensor>{at::ones({1})}, torch::optim::SGDOptions(1));
        LibTorchs plateau(theirs, higher ? LibTorchs::max : LibTorchs::min, 0.5F, 2, 0.01,
                          relative ? LibTorchs::rel : LibTorchs::abs, cooldown, {0.0625F}, 0);
        Schedule schedule(ours, RatePlan::plateau({.factor = 0.5,
                                                   .patience = 2,
                                                   .threshold = 0.01,
                                                   .relative = relative,
                                                   .higher_is_better = higher,
                                                   .cooldown = cooldown,
                                                   .floor = 0.0625}));
        std::set<double> rates;
        bool same = true;
        for (int i = 0; i < 60; ++i) {
          const double metric = (400 + (higher ? i : -i) + static_cast<int>(random() % 64)) / 64.0;
          plateau.step(static_cast<float>(metric));
          schedule.observe(metric);
          const double rate = ours.param_groups()[0].options().get_lr();
          rates.insert(rate);
          same = same && rate == theirs.param_groups()[0].options().get_lr();
        }
        EXPECT_GT(rates.size(), 2U);
        EXPECT_TRUE(same) << higher << relative << cooldown;
      }
    }
  }
}

TEST(Plateau, ThresholdsModesAndFloor) {
  PlateauState state = observe({}, {}, 1.0);
  EXPECT_EQ(observe({}, state, 0.99995).bad, 1) << "within the relative threshold";
  EXPECT_EQ(observe({}, state, 0.9998).bad, 0);
  EXPECT_EQ(observe({.threshold = 0.1, .relative = false}, state, 0.95).bad, 1);
  const PlateauOptions up{.patience = 0, .higher_is_better = true, .floor = 0.05};
  state = observe(up, {}, 0.5);
  EXPECT_EQ(observe(up, state, 0.6).best, 0.6);
  state = observe(up, state, 0.4);
  EXPECT_DOUBLE_EQ(state.factor, 0.1);
  EXPECT_EQ(observe(up, state, 0.4).factor, 0.05);
  EXPECT_EQ(observe({}, {}, std::numeric_limits<double>::infinity()).bad, 1);
}

class ScheduleTest : public ::testing::Test {
 protected:
  torch::optim::SGD make(double second = 0.01) {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(std::vector<at::Tensor>{at::ones({2}).set_requires_grad(true)},
                        std::make_unique<torch::optim::SGDOptions>(0.1));
    groups.emplace_back(std::vector<at::Tensor>{at::ones({2}).set_requires_grad(true)},
                        std::make_unique<torch::optim::SGDOptions>(second));
    return torch::optim::SGD(groups, torch::optim::SGDOptions(0.1));
  }
  static double rate(torch::optim::SGD& optimizer, std::size_t group) {
    return optimizer.param_groups()[group].options().get_lr();
  }
};

TEST_F(ScheduleTest, SetsEveryGroupFromItsOwnBase) {
  auto optimizer = make();
  Schedule schedule(optimizer, RatePlan::step(2, 0.5));
  EXPECT_EQ(rate(optimizer, 0), 0.1);
  schedule.step();
  EXPECT_EQ(rate(optimizer, 1), 0.01);
  schedule.step();
  EXPECT_EQ(schedule.position(), 2);
  EXPECT_EQ(rate(optimizer, 0), 0.05);
  EXPECT_EQ(rate(optimizer, 1), 0.005);
  EXPECT_EQ(schedule.apply(4), 0.025);
  EXPECT_EQ(schedule.apply(0), 0.1) << "a pure function of the step";

  torch::optim::OptimizerParamGroup late(std::vector<at::Tensor>{at::ones({1}).set_requires_grad(true)},
                                         std::make_unique<torch::optim::SGDOptions>(1.0));
  optimizer.add_param_group(late);
  schedule.apply(2);
  EXPECT_EQ(rate(optimizer, 2), 0.5);
}

TEST_F(ScheduleTest, GoesOnWhereItWasSaved) {
  auto first = make(), second = make();
  const RatePlan plan = RatePlan::warmup(2, RatePlan::plateau({.factor = 0.5, .patience = 0}));
  Schedule before(first, plan), after(second, plan);
  for (int i = 0; i < 5; ++i) before.step();
  for (const double metric : {1.0, 2.0, 0.5, 0.7}) before.observe(metric);
  EXPECT_DOUBLE_EQ(rate(first, 0), 0.025);

  holdfast_test::MemoryState memory;
  before.save(memory);
  EXPECT_TRUE(memory.options.contains("lr"));
  EXPECT_TRUE(memory.options.contains("warmup.steps"));
  EXPECT_FALSE(memory.options.contains("position"));
  after.load(memory);
  EXPECT_EQ(after.position(), 5);
  for (const double metric : {0.6, 0.4, 0.41}) {
    before.observe(metric);
    after.observe(metric);
    for (const std::size_t group : {0, 1}) EXPECT_EQ(rate(first, group), rate(second, group));
  }
}

TEST_F(ScheduleTest, AProductOfAPlateauAndStepsGoesOnWhereItWasSaved) {
  auto first = make(), second = make();
  const RatePlan plan =
      RatePlan::product(RatePlan::plateau({.factor = 0.5, .patience = 0}), RatePlan::step(2, 0.1));
  Schedule before(first, plan), after(second, plan);
  before.apply(3);
  for (const double metric : {1.0, 2.0, 3.0}) before.observe(metric);
  EXPECT_DOUBLE_EQ(rate(first, 0), 0.1 * 0.25 * 0.1);

  holdfast_test::MemoryState memory;
  before.save(memory);
  for (const char* name : {"kind", "first.kind", "first.plateau.patience", "second.step.every"}) {
    EXPECT_TRUE(memory.options.contains(name)) << name;
  }
  after.load(memory);
  EXPECT_EQ(rate(first, 0), rate(second, 0));
  before.observe(4);
  after.observe(4);
  before.step();
  after.step();
  EXPECT_EQ(rate(first, 1), rate(second, 1));
}

TEST_F(ScheduleTest, EachGroupFollowsItsOwnPlan) {
  auto first = make(), second = make();
  const std::vector<RatePlan> plans = {RatePlan::step(2, 0.5),
                                       RatePlan::plateau({.factor = 0.1, .patience = 0})};
  Schedule before(first, plans), after(second, plans);
  before.apply(2);
  EXPECT_EQ(rate(first, 0), 0.05);
  EXPECT_EQ(rate(first, 1), 0.01);
  for (const double metric : {1.0, 2.0}) before.observe(metric);
  EXPECT_EQ(rate(first, 0), 0.05);
  EXPECT_DOUBLE_EQ(rate(first, 1), 0.001);

  holdfast_test::MemoryState memory;
  before.save(memory);
  for (const char* name : {"group0.kind", "group0.step.every", "group1.plateau.patience"}) {
    EXPECT_TRUE(memory.options.contains(name)) << name;
  }
  after.load(memory);
  for (const std::size_t group : {0, 1}) EXPECT_EQ(rate(first, group), rate(second, group));

  torch::optim::OptimizerParamGroup third(std::vector<at::Tensor>{at::ones({1}).set_requires_grad(true)},
                                          std::make_unique<torch::optim::SGDOptions>(1.0));
  first.add_param_group(third);
  try {
    before.step();
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("3 parameter groups and the schedule 2 plans"));
  }
}

// Each has the plateau's own count.
TEST_F(ScheduleTest, TwoGroupsMayHaveAPlateauEach) {
  auto optimizer = make();
  Schedule schedule(optimizer, std::vector{RatePlan::plateau({.factor = 0.5, .patience = 0}),
                                           RatePlan::plateau({.factor = 0.5, .patience = 1})});
  for (const double metric : {1.0, 2.0}) schedule.observe(metric);
  EXPECT_EQ(rate(optimizer, 0), 0.05);
  EXPECT_EQ(rate(optimizer, 1), 0.01);
  schedule.observe(2);
  EXPECT_EQ(rate(optimizer, 0), 0.025);
  EXPECT_EQ(rate(optimizer, 1), 0.005);
}

TEST_F(ScheduleTest, DerivedLengthsAreKeptAcrossResumes) {
  auto first = make(), longer = make();
  Schedule before(first, RatePlan::warmup(Length::derived(10), RatePlan::cosine(Length::derived(100))));
  Schedule after(longer, RatePlan::warmup(Length::derived(20), RatePlan::cosine(Length::derived(200))));
  holdfast_test::MemoryState memory;
  before.apply(50);
  before.save(memory);
  EXPECT_FALSE(memory.options.contains("warmup.steps"));
  EXPECT_FALSE(memory.options.contains("after.cosine.steps"));
  EXPECT_TRUE(memory.options.contains("after.cosine.floor"));
  after.load(memory);
  for (int step = 0; step < 150; ++step) EXPECT_EQ(before.apply(step), after.apply(step));
}

TEST_F(ScheduleTest, OnlyAPlateauObserves) {
  auto optimizer = make();
  Schedule schedule(optimizer, RatePlan::cosine(10));
  try {
    schedule.observe(1);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cosine"));
  }
  EXPECT_THROW(schedule.apply(-1), UsageError);
}

}}  // namespace holdfast
