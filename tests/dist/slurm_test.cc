// The scripts of examples/slurm and `holdfast supervise --requeue-slurm` on a real Slurm: told to stop, out of time,
// requeued, cancelled, on a node that is lost or drained. The runs complete with the bits of undisturbed ones.
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

constexpr int kSteps = 300;  // of 10 ms

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
  if (!nightly()) GTEST_SKIP() << "by day one whose end is announced does: HOLDFAST_NIGHTLY=1";
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

// By partitions whose preemption cancels, at once or after a time of grace, and by one that requeues.
TEST_F(SlurmJob, ThatIsPreemptedGoesOn) {
  for (const std::string partition : {"cancels", "requeues", "graces"}) {
    const bool in_place =
        partition == "graces";  // its tasks are told to stop, and go on until Slurm looks again
    if (in_place && !nightly()) continue;
    const Job job = submit(partition,
                           driver(folder_.path() / partition, kSteps,
                                  {"every=10", in_place ? "pace-us=150000" : "pace-us=10000"}),
                           {"--partition=" + partition});
    ASSERT_TRUE(trains(job)) << job.said();
    const std::string urgent = cluster_->run({"sbatch", "--parsable", "--partition=urgent", "--nodes=2",
                                              "--exclusive", "--output=/dev/null", "--wrap=true"});
    ASSERT_TRUE(cluster_->reaches(urgent, "COMPLETED")) << job.said();
    completes(job);
    EXPECT_EQ(restarts(job.id), "1") << partition;
    EXPECT_THAT(job.said(), HasSubstr("interrupted step=")) << partition;
  }
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

TEST_F(SlurmJob, GivesItsOnlyTaskAllOfItsCores) {
  const Job job =
      submit("cores", {"/bin/sh", "-c", "echo cores=$SLURM_CPUS_ON_NODE; exit 64"}, {"--exclusive"});
  ASSERT_TRUE(cluster_->reaches(job.id, "FAILED")) << job.said();
  EXPECT_THAT(job.said(), HasSubstr("cores=8\n"));
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

// The first block of the recipe's page, as it stands there. The trainer's steps depend on its seed, so no run can pass
// for another.
TEST_F(SlurmJob, OfASweepSurvivesAlone) {
  if (!nightly()) GTEST_SKIP() << "by day an array's element is requeued alone: HOLDFAST_NIGHTLY=1";
  const auto steps = [](int seed) { return kSteps + 20 * seed; };
  const std::filesystem::path root = folder_.path() / "ckpt";
  const std::filesystem::path train = folder_.path() / "train";
  write_text(train,
             "#!/bin/bash\n[[ \"$1 $3 $5\" == '--lr --seed --checkpoint-dir' ]] || exit 64\n"
             "exec " HOLDFAST_DRIVER " \"$6\" $((" +
                 std::to_string(kSteps) + " + 20 * $4)) every=10 pace-us=10000\n");
  std::filesystem::permissions(train, std::filesystem::perms::owner_all);
  // With two cores each, four elements fill a node.
  const std::string block = "s,^sbatch,& --cpus-per-task=2,; s,/mnt/ckpt," + root.string() +
                            ",; s,examples/slurm/," HOLDFAST_SOURCE_DIR "/&,";
  const std::string submitted =
      cluster_->run({"/bin/bash", "-c",
                     "cd \"$1\" && mkdir ckpt && sed '/^```sh/,/^```/!d; /^```sh/d; /^```/Q' \"$3\" | sed "
                     "\"$2\" | bash -eu",
                     "sh", folder_.path().string(), block, HOLDFAST_SOURCE_DIR "/examples/slurm/README.md"},
                    {{"HOLDFAST", HOLDFAST_BIN_DIR "/holdfast"},
                     {"HOLDFAST_SOURCES", "signal,file,deadline"},
                     {"OMP_NUM_THREADS", "1"}});
  const std::string array = submitted.substr(submitted.rfind(' ') + 1);
  const std::vector<std::string> names{"lr01-1", "lr01-2", "lr03-1", "lr03-2", "lr10-1", "lr10-2"};
  std::vector<Job> elements;
  for (std::size_t i = 0; i < names.size(); ++i) {
    elements.push_back({.id = array + "_" + std::to_string(i),
                        .run = root / names[i],
                        .log = folder_.path() / ("sweep-" + array + "-" + std::to_string(i) + ".log")});
  }
  for (const Job& element : elements) ASSERT_TRUE(trains(element)) << submitted << element.said();
  // One is killed where it stays; the others of its node have to leave.
  const std::string node = cluster_->field(elements[0].id, "NodeList");
  const Job& killed = elements[5];
  ASSERT_NE(cluster_->field(killed.id, "NodeList"), node) << "all elements are on one node";
  cluster_->run({"pkill", "--signal", "KILL", "--full", HOLDFAST_DRIVER " " + killed.run.string()});
  cluster_->run({"scontrol", "update", "NodeName=" + node, "State=DRAIN", "Reason=repair"});
  std::vector<bool> moved;
  for (const Job& element : elements) {
    moved.push_back(cluster_->field(element.id, "NodeList") == node);
    if (moved.back()) cluster_->run({"scontrol", "requeue", element.id});
  }
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const Job& element = elements[i];
    ASSERT_TRUE(cluster_->reaches(element.id, "COMPLETED")) << element.said();
    const int end = steps(static_cast<int>(i) + 1);
    EXPECT_THAT(element.said(),
                HasSubstr("complete step=" + std::to_string(end) + " state=" + straight_state(end)));
    EXPECT_EQ(restarts(element.id), moved[i] ? "1" : "0") << names[i];
    EXPECT_NE(cluster_->field(element.id, "NodeList"), moved[i] ? node : "") << names[i];
  }
  EXPECT_THAT(killed.said(), HasSubstr("started again in"));
  cluster_->run({"scontrol", "update", "NodeName=" + node, "State=RESUME"});
}

TEST_F(SlurmJob, OfASweepWithAnIndexBeyondTheFileFailsAndNamesIt) {
  write_text(folder_.path() / "sweep.jsonl", "{\"name\": \"one\"}\n");
  Job job{.id = {}, .run = folder_.path() / "one", .log = folder_.path() / "log"};
  job.id = cluster_->run({"sbatch", "--parsable", "--array=1", "--output=" + job.log.string(),
                          HOLDFAST_SOURCE_DIR "/examples/slurm/sweep.sbatch",
                          (folder_.path() / "sweep.jsonl").string(), folder_.path().string(), "true"},
                         {{"HOLDFAST", HOLDFAST_BIN_DIR "/holdfast"}});
  ASSERT_TRUE(cluster_->reaches(job.id + "_1", "FAILED")) << job.said();
  EXPECT_EQ(cluster_->field(job.id + "_1", "ExitCode"), "64:0");
  EXPECT_THAT(job.said(), HasSubstr("SLURM_ARRAY_TASK_ID=1 is beyond sweep.jsonl"));
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
