// A trial of `holdfast check` uses its own directory, tells every step, and does what is ordered for it.
#include "holdfast/checkpoint/internal/trial.h"

#include <csignal>
#include <cstdlib>
#include <optional>

#include "rig.h"
#include "support/french_numbers.h"
#include "support/memory_world.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using internal::Trial;
using testing::HasSubstr;

class TrialTest : public testing::Test {
 protected:
  TrialTest() { setenv("HOLDFAST_TRIAL", folder.path().c_str(), 1); }
  ~TrialTest() override { unsetenv("HOLDFAST_TRIAL"); }

  // A run of a trial with these orders, in a folder of the real file system.
  void order(const TrialOrders& orders) {
    write_orders(folder.path(), orders);
    options.start.seams = {};
    run.emplace(options);
  }

  TemporaryFolder folder;
  Volume volume;
  CapturedLog log;
  CheckpointerOptions options = volume.options();
  std::optional<Attempt> run;
};

TEST_F(TrialTest, WithoutTheVariableThereIsNone) {
  unsetenv("HOLDFAST_TRIAL");
  EXPECT_FALSE(Trial::begin(options));
  EXPECT_EQ(options.directory, kRun);
  EXPECT_EQ(options.mount, "/vol");
}

TEST_F(TrialTest, LeavesTheProgramsOwnRunAlone) {
  write_orders(folder.path(), {.stop_at = 4});
  options.every = {SaveEvery::steps(2)};
  options.start.resume_from = "1200";
  options.start.home = "/efs/run";
  options.notices.cloud = true;
  ASSERT_TRUE(Trial::begin(options));
  EXPECT_EQ(options.directory, trial_run(folder.path()));
  EXPECT_TRUE(options.mount.empty());
  EXPECT_TRUE(options.every.empty()) << "saves are ordered";
  EXPECT_EQ(options.start.resume_from, "");
  EXPECT_EQ(options.start.home, "");
  EXPECT_FALSE(options.notices.cloud);
  EXPECT_THAT(log.text(), HasSubstr(std::string("not to ") + kRun));
}

TEST_F(TrialTest, AFolderWithoutOrdersIsRefused) { EXPECT_THROW(Trial::begin(options), UsageError); }

TEST_F(TrialTest, SeveralRanksAreRefused) {
  write_orders(folder.path(), {.stop_at = 4});
  MemoryWorld one(1);
  options.ranks.channel = &one.rank(0);
  EXPECT_TRUE(Trial::begin(options));
  MemoryWorld two(2);
  options.ranks.channel = &two.rank(0);
  EXPECT_THROW(Trial::begin(options), UsageError);
}

TEST_F(TrialTest, TellsEveryStepWithTheBitsOfItsLossAndState) {
  order({.stop_at = 9});
  run->step();
  run->step();
  const std::vector<TrialStep> told = read_steps(folder.path());
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[0].step, 1);
  EXPECT_EQ(told[1].step, 2);
  EXPECT_NE(told[0].loss, told[1].loss);
  EXPECT_NE(told[1].loss, "-");
  EXPECT_EQ(told[0].state, state_after(1));
  EXPECT_EQ(told[1].state, state_after(2));
  EXPECT_FALSE(run->decision.stop);
}

TEST_F(TrialTest, TellsTheSameWhereAProgramsLocaleGroupsDigits) {
  const TrialStep step{
      .step = 1200, .loss = "4607", .epoch = 3, .state = "ab", .output = 123456, .evaluations = 0};
  {
    const FrenchNumbers locale;
    write_orders(folder.path(), {.stop_at = 1200, .save_at = 100});
    EXPECT_EQ(read_orders(folder.path()).save_at, 100);
    append_step(folder.path(), step);
    append_values(folder.path(), {{{.step = 1200, .name = "w", .form = "float32 [4, 4]", .value = "cd"}}});
  }
  EXPECT_EQ(read_orders(folder.path()).stop_at, 1200);
  EXPECT_THAT(read_steps(folder.path()), testing::ElementsAre(step));
  const std::vector<TrialValue> values = read_values(folder.path());
  ASSERT_EQ(values.size(), 1U);
  EXPECT_EQ(values[0].step, 1200);
}

TEST_F(TrialTest, SavesAndStopsAtTheOrderedSteps) {
  order({.stop_at = 3, .save_at = 2});
  run->step();
  EXPECT_EQ(run->checkpointer.last_durable().step, -1);
  run->step();
  EXPECT_EQ(run->checkpointer.last_durable().step, 2);
  EXPECT_FALSE(run->decision.stop);
  run->step();
  EXPECT_TRUE(run->decision.stop);
  EXPECT_EQ(run->decision.reason, "the trial ends here");
}

TEST_F(TrialTest, DiesAtTheOrderedStepAfterItHasToldIt) {
  order({.stop_at = 9, .kill_at = 1});
  log.text();  // a death test captures standard error as well
  EXPECT_EXIT(run->step(), testing::KilledBySignal(SIGKILL), "");
  const std::vector<TrialStep> told = read_steps(folder.path());
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].step, 1);
}

TEST_F(TrialTest, AProgramThatIgnoresAStopIsEnded) {
  order({.stop_at = 1});
  run->step();
  EXPECT_TRUE(run->decision.stop);
  log.text();  // a death test captures standard error as well
  EXPECT_EXIT(run->step(), testing::KilledBySignal(SIGKILL), "");
}

}}  // namespace holdfast::test
