// examples/slurm/train.sbatch and `holdfast supervise --requeue-slurm` on a real Slurm: told to stop, out of time,
// requeued, cancelled, on a node that is lost. The run completes with the bits of one that nothing disturbed.
#include "dist/slurm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "crash/driver_run.h"
#include "support/nightly.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

using Words = std::vector<std::string>;
using Environment = std::map<std::string, std::string>;

constexpr int kSteps = 500;  // of 10 ms

struct Job {
  std::string id;
  std::filesystem::path run;
  std::filesystem::path log;
  std::string said() const { return read_text(log); }
};

class SlurmJob : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    why_not_ = Slurm::start(cluster_);
    if (!why_not_) straight_ = straight_state(kSteps);
  }
  static void TearDownTestSuite() { cluster_.reset(); }
  void SetUp() override {
    if (why_not_) GTEST_SKIP() << *why_not_;
  }

  Job submit(const std::string& name, const Words& command, const Words& options = {},
             Environment environment = {}) const {
    Job job{.id = {}, .run = folder_.path() / name, .log = folder_.path() / (name + ".log")};
    environment.insert({{"HOLDFAST", HOLDFAST_BIN_DIR "/holdfast"},
                        {"HOLDFAST_SOURCES", "signal,file,deadline"},
                        {"OMP_NUM_THREADS", "1"}});
    Words words = {"sbatch", "--parsable", "--output=" + job.log.string()};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {HOLDFAST_SOURCE_DIR "/examples/slurm/train.sbatch", job.run.string()});
    words.insert(words.end(), command.begin(), command.end());
    job.id = cluster_->run(words, environment);
    return job;
  }
  Job train(const std::string& name, const Words& options = {}, const Environment& environment = {}) const {
    return submit(name, driver(folder_.path() / name, kSteps, {"every=10", "pace-us=10000"}), options,
                  environment);
  }
  // It trains: the first checkpoint is there.
  static bool trains(const Job& job) {
    return until([&] {
      if (!std::filesystem::is_directory(job.run)) return false;
      for (const auto& entry : std::filesystem::directory_iterator(job.run)) {
        if (entry.path().filename().string().starts_with("step-")) return true;
      }
      return false;
    });
  }
  static bool until(const std::function<bool()>& condition) {
    return Subprocess({"/bin/sleep", "120"}).wait_until(condition, 2min);
  }
  static void completes(const Job& job, const std::string& id = {}) {
    ASSERT_TRUE(cluster_->reaches(id.empty() ? job.id : id, "COMPLETED")) << job.said();
    EXPECT_THAT(job.said(), HasSubstr("complete step=" + std::to_string(kSteps) + " state=" + straight_));
  }
  static std::string restarts(const std::string& job) { return cluster_->field(job, "Restarts"); }

  static inline std::unique_ptr<Slurm> cluster_;
  static inline std::optional<std::string> why_not_;
  static inline std::string straight_;
  TemporaryFolder folder_;
};

TEST_F(SlurmJob, WhoseTasksAreToldToStopGoesOnInPlace) {
  const Job job = train("run");
  ASSERT_TRUE(trains(job)) << job.said();
  cluster_->run({"scancel", "--signal=TERM", job.id});
  completes(job);
  EXPECT_EQ(restarts(job.id), "0");
  EXPECT_THAT(job.said(), AllOf(HasSubstr("exit 75"), HasSubstr("started again in")));
}

// The signal of --signal=B:USR1@120, sent by hand.
TEST_F(SlurmJob, WhoseEndIsAnnouncedGoesBackToItsQueue) {
  const Job job = train("run", {}, {{"HOLDFAST_DEADLINE_SIGNAL", "USR1@4"}});
  ASSERT_TRUE(trains(job)) << job.said();
  cluster_->run({"scancel", "--batch", "--signal=USR1", job.id});
  completes(job);
  EXPECT_THAT(job.said(), HasSubstr("SIGUSR1 announced the end of this process"));
  EXPECT_EQ(restarts(job.id), "1");
}

TEST_F(SlurmJob, WhoseScriptIsToldToStopGoesBackToItsQueue) {
  const Job job = train("run");
  ASSERT_TRUE(trains(job)) << job.said();
  cluster_->run({"scancel", "--batch", "--signal=TERM", job.id});
  completes(job);
  EXPECT_EQ(restarts(job.id), "1");
  EXPECT_THAT(job.said(), HasSubstr("srun: error: n")) << "its tasks were not killed, they left with 75";
  EXPECT_THAT(job.said(), HasSubstr("Exited with exit code 75"));
}

TEST_F(SlurmJob, ThatSlurmRequeuesGoesOn) {
  const Job job = train("run");
  ASSERT_TRUE(trains(job)) << job.said();
  cluster_->run({"scontrol", "requeue", job.id});
  completes(job);
  EXPECT_EQ(restarts(job.id), "1");
  EXPECT_THAT(job.said(), HasSubstr("interrupted step="));
}

TEST_F(SlurmJob, ThatIsCancelledStaysCancelled) {
  const Job job = train("run");
  ASSERT_TRUE(trains(job)) << job.said();
  cluster_->run({"scancel", job.id});
  ASSERT_TRUE(cluster_->reaches(job.id, "CANCELLED")) << job.said();
  EXPECT_EQ(restarts(job.id), "0");
  EXPECT_THAT(job.said(), HasSubstr("is not requeued"));
}

// The node's daemon dies, its processes train on: a node that the network has cut off.
TEST_F(SlurmJob, OfALostNodeGoesOnElsewhereAndTheOldTrainerGivesWay) {
  const Job job = train("run");
  ASSERT_TRUE(trains(job)) << job.said();
  const std::string node = "NodeName=" + cluster_->field(job.id, "NodeList");
  cluster_->kill_steps_of(job.id);
  cluster_->run({"scontrol", "update", node, "State=DOWN", "Reason=lost"});
  completes(job);
  EXPECT_TRUE(until([] {
    return cluster_->run({"/bin/sh", "-c", "pgrep --count --exact checkpointer_dr || true"}) == "0";
  })) << "the trainer of the lost node lives on";
  EXPECT_EQ(restarts(job.id), "1");
}

TEST_F(SlurmJob, ThatCannotGoOnIsNotRequeued) {
  for (const std::string code : {"76", "78", "64"}) {
    const Job job = submit("code" + code, {"/bin/sh", "-c", "exit " + code});
    ASSERT_TRUE(cluster_->reaches(job.id, "FAILED")) << job.said();
    EXPECT_EQ(cluster_->field(job.id, "ExitCode"), code + ":0");
    EXPECT_EQ(restarts(job.id), "0");
  }
}

TEST_F(SlurmJob, OfAnArrayIsRequeuedAlone) {
  const Job array = train("run%a", {"--array=0-1"}, {{"HOLDFAST_DEADLINE_SIGNAL", "USR1@4"}});
  const auto element = [&](const std::string& index) {
    return Job{.id = array.id + "_" + index,
               .run = folder_.path() / ("run" + index),
               .log = folder_.path() / ("run" + index + ".log")};
  };
  ASSERT_TRUE(trains(element("0")) && trains(element("1"))) << element("0").said();
  // Slurm gives the array's own number to one of them. Asked to requeue that number, it would requeue both.
  const std::string alone = cluster_->field(element("1").id, "JobId") == array.id ? "1" : "0";
  const std::string other = alone == "1" ? "0" : "1";
  cluster_->run({"scancel", "--batch", "--signal=USR1", element(alone).id});
  for (const std::string index : {"0", "1"}) completes(element(index));
  EXPECT_THAT(element(alone).said(), HasSubstr("interrupted step="));
  EXPECT_THAT(element(other).said(), Not(HasSubstr("interrupted step=")));
  EXPECT_EQ(restarts(element(other).id), "0");
}

// Ranks on two nodes, started by srun, with LibTorch.
TEST_F(SlurmJob, OnTwoNodesGoesOnBitForBit) {
  const auto ranks = [&](const std::string& name) {
    return submit(name, {HOLDFAST_BIN_DIR "/multi_gpu", (folder_.path() / name).string(), "600"},
                  {"--nodes=2"});
  };
  const auto state = [](const Job& job) {
    const std::string said = job.said();
    const std::size_t at = said.find("step=600 loss=");
    return at == std::string::npos ? "none: " + said : said.substr(at, said.find('\n', at) - at);
  };
  const Job straight = ranks("straight");
  ASSERT_TRUE(cluster_->reaches(straight.id, "COMPLETED")) << straight.said();
  EXPECT_THAT(straight.said(), HasSubstr("2 ranks are here"));
  const Job job = ranks("run");
  ASSERT_TRUE(until([&] { return job.said().find("step 100 ") != std::string::npos; })) << job.said();
  cluster_->run({"scancel", "--signal=TERM", job.id});
  ASSERT_TRUE(cluster_->reaches(job.id, "COMPLETED")) << job.said();
  EXPECT_THAT(job.said(), HasSubstr("exit 75"));
  EXPECT_EQ(state(job), state(straight));
}

// Slurm's shortest limit is a minute, and it looks twice a minute.
TEST_F(SlurmJob, WhoseTimeIsOverGoesBackToItsQueue) {
  if (!nightly()) GTEST_SKIP() << "two minutes: HOLDFAST_NIGHTLY=1";
  const Job announced =
      train("announced", {"--time=1", "--signal=B:USR1@20"}, {{"HOLDFAST_DEADLINE_SIGNAL", "USR1@20"}});
  const Job sudden = train("sudden", {"--time=1", "--signal=B:CONT@1"});
  for (const Job* const job : {&announced, &sudden}) completes(*job);
}

}}  // namespace holdfast::test
