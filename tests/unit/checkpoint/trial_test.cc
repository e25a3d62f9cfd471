// A trial of `holdfast check` uses its own directory, tells every step, and does what is ordered for it.
#include "holdfast/checkpoint/internal/trial.h"

#include <csignal>
#include <cstdlib>

#include "engine_rig.h"
#include "support/memory_world.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using internal::Trial;
using testing::ElementsAre;
using testing::HasSubstr;

// Notes the saves that it is asked for.
class AskedEnsemble final : public internal::Ensemble {
 public:
  explicit AskedEnsemble(const SnapshotSource& source) : source_(source) {}
  void read_ahead() override {}
  std::optional<Peeked> peek() override { return std::nullopt; }
  Resumed resume() override { return {}; }
  void at_boundary(Decision& /*decision*/) override {}
  bool tick() override { return false; }
  SaveHandle save() override {
    saves.push_back(source_.step());
    return {};
  }
  void save_best(const std::string& /*name*/, double /*value*/) override {}
  void enter_evaluation() override {}
  void leave_evaluation(bool /*thrown_out*/) override {}
  void finish() override {}
  void leave() noexcept override {}
  void leave_write_behind() noexcept override {}

  std::vector<std::int64_t> saves;

 private:
  const SnapshotSource& source_;
};

class TrialTest : public EngineTest {
 protected:
  TrialTest() { setenv("HOLDFAST_TRIAL", folder.path().c_str(), 1); }
  ~TrialTest() override { unsetenv("HOLDFAST_TRIAL"); }

  // From here on there are orders, and a trial that hears them.
  void order(const TrialOrders& orders) {
    write_orders(folder.path(), orders);
    CheckpointerOptions unused = options;
    trial = Trial::begin(unused);
    ASSERT_TRUE(trial);
    start();
  }
  void step_in_trial() {
    step();
    trial->at_boundary(*engine, ensemble);
  }

  TemporaryFolder folder;
  AskedEnsemble ensemble{source};
  std::optional<Trial> trial;
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
  step_in_trial();
  step_in_trial();
  const std::vector<TrialStep> told = read_steps(folder.path());
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[0].step, 1);
  EXPECT_EQ(told[1].step, 2);
  EXPECT_NE(told[0].loss, told[1].loss);
  EXPECT_NE(told[1].loss, "-");
  EXPECT_EQ(told[0].state, state_after(1));
  EXPECT_EQ(told[1].state, state_after(2));
  EXPECT_FALSE(run->monitor.stop_requested());
}

TEST_F(TrialTest, SavesAndStopsAtTheOrderedSteps) {
  order({.stop_at = 3, .save_at = 2});
  step_in_trial();
  EXPECT_THAT(ensemble.saves, ElementsAre());
  step_in_trial();
  EXPECT_THAT(ensemble.saves, ElementsAre(2));
  EXPECT_FALSE(run->monitor.stop_requested());
  step_in_trial();
  EXPECT_THAT(ensemble.saves, ElementsAre(2));
  EXPECT_TRUE(run->monitor.stop_requested());
}

TEST_F(TrialTest, DiesAtTheOrderedStepAfterItHasToldIt) {
  order({.stop_at = 9, .kill_at = 1});
  log.text();  // a death test captures standard error as well
  EXPECT_EXIT(step_in_trial(), testing::KilledBySignal(SIGKILL), "");
  const std::vector<TrialStep> told = read_steps(folder.path());
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].step, 1);
}

TEST_F(TrialTest, AProgramThatIgnoresAStopIsEnded) {
  order({.stop_at = 1});
  step_in_trial();
  EXPECT_TRUE(run->monitor.stop_requested());
  log.text();  // a death test captures standard error as well
  EXPECT_EXIT(step_in_trial(), testing::KilledBySignal(SIGKILL), "");
}

}}  // namespace holdfast::test
