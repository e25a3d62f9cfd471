// examples/kubernetes: its manifests are what the published schemas demand, and its pod survives what a kubelet does:
// SIGTERM, the grace period, SIGKILL, and a next pod on another node with the same volume.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "crash/driver_run.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

using Words = std::vector<std::string>;
namespace fs = std::filesystem;

const fs::path kExamples = HOLDFAST_SOURCE_DIR "/examples/kubernetes";
constexpr int kSteps = 600;  // of 10 ms

Words by_name(const Words& words) {
  Words command = {"/bin/sh", "-c", "PATH=$PATH:/usr/sbin:/sbin exec \"$@\"", "sh"};
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

// A value of a manifest, as it is written there: `key: value`.
std::string value_in(const fs::path& file, const std::string& key) {
  std::smatch found;
  const std::string text = read_text(file);
  const std::regex pattern(key + ":? *,? *(?:value: *)?([0-9]+)");
  return std::regex_search(text, found, pattern) ? found[1].str() : "";
}

// `key: [a, "b"]` of a manifest.
Words list_in(const fs::path& file, const std::string& key) {
  std::smatch found;
  const std::string text = read_text(file);
  if (!std::regex_search(text, found, std::regex("\n *" + key + ": \\[(.*)\\]"))) return {};
  const std::string list = found[1];
  const std::regex word("\"([^\"]*)\"|[^ ,]+");
  Words words;
  for (auto at = std::sregex_iterator(list.begin(), list.end(), word); at != std::sregex_iterator(); ++at) {
    words.push_back((*at)[1].matched ? (*at)[1] : (*at)[0]);
  }
  return words;
}

// What the Job's podFailurePolicy does with an exit code: the first rule counts. Else backoffLimit counts it.
std::string action_of(const fs::path& file, int exit_code) {
  const std::string text = read_text(file);
  const std::regex rule("action: (\\w+).*\n *onExitCodes: .*values: \\[(.*)\\]");
  for (auto at = std::sregex_iterator(text.begin(), text.end(), rule); at != std::sregex_iterator(); ++at) {
    const std::string codes = ", " + (*at)[2].str() + ",";
    if (codes.find(" " + std::to_string(exit_code) + ",") != std::string::npos) return (*at)[1];
  }
  return "Count";
}

TEST(KubernetesManifests, StartNoPodAgainThatAPersonMustLookAt) {
  for (const char* const file : {"base/job.yaml", "jobset/jobset.yaml"}) {
    for (const int final : {64, 76, 78}) EXPECT_EQ(action_of(kExamples / file, final), "FailJob") << file;
    EXPECT_EQ(action_of(kExamples / file, 75), "Ignore") << file;
    EXPECT_EQ(action_of(kExamples / file, 1), "Count") << file;
  }
}

// The probes of a manifest, as words, in its order: startup, liveness.
std::vector<Words> probes_in(const fs::path& file) {
  const std::string text = read_text(file);
  const std::regex command("Probe:\n *exec: \\{command: \\[(.*)\\]\\}");
  const std::regex word("'([^']*)'|[^ ,]+");
  std::vector<Words> probes;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), command); at != std::sregex_iterator();
       ++at) {
    const std::string list = (*at)[1];
    Words& words = probes.emplace_back();
    for (auto one = std::sregex_iterator(list.begin(), list.end(), word); one != std::sregex_iterator();
         ++one) {
      words.push_back((*one)[1].matched ? (*one)[1] : (*one)[0]);
    }
  }
  return probes;
}

// 2 tells of the volume alone: a trainer sits its outage out, and would lose what it has not saved.
TEST(KubernetesManifests, RestartAPodOnlyForATrainingThatStandsStill) {
  const TemporaryFolder folder;
  write_text(folder.path() / "holdfast",
             "#!/bin/sh\n[ \"$1 $3 $4 $5 $6\" = 'status --max-age 15m --max-unsaved 0s' ] && exit $CODE\n"
             "exit 1\n");
  fs::permissions(folder.path() / "holdfast", fs::perms::owner_all);
  for (const char* const file : {"base/job.yaml", "mig/slices.yaml"}) {
    const std::vector<Words> probes = probes_in(kExamples / file);
    ASSERT_EQ(probes.size(), 2u) << file;
    const auto code_of = [&](const Words& probe, int status) {
      const Words words{"/bin/sh", "-c", "PATH=$FOLDER:$PATH; exec \"$@\"", "sh"};
      Words all = words;
      all.insert(all.end(), probe.begin(), probe.end());
      return Subprocess(
                 all,
                 {{"FOLDER", folder.path().string()}, {"POD_INDEX", "3"}, {"CODE", std::to_string(status)}})
          .wait()
          .exit_code;
    };
    EXPECT_NE(code_of(probes[1], 1), 0) << file;
    for (const int no_reason : {0, 2, 75, 78})
      EXPECT_EQ(code_of(probes[1], no_reason), 0) << file << no_reason;
    // Until the new attempt has claimed, the answer is about the last one.
    EXPECT_EQ(code_of(probes[0], 0), 0) << file;
    for (const int not_yet : {1, 2, 75}) EXPECT_NE(code_of(probes[0], not_yet), 0) << file << not_yet;
  }
}

TEST(KubernetesManifests, KeepFiveSecondsOfTheGracePeriod) {
  for (const char* const file : {"base/job.yaml", "jobset/jobset.yaml", "spot-eks/pool.yaml",
                                 "spot-gke/pool.yaml", "spot-aks/pool.yaml", "spot-karpenter/pool.yaml"}) {
    const int whole = std::atoi(value_in(kExamples / file, "terminationGracePeriodSeconds").c_str());
    const int named = std::atoi(value_in(kExamples / file, "HOLDFAST_TERM_GRACE").c_str());
    EXPECT_GT(named, 0) << file;
    EXPECT_EQ(named + 5, whole) << file;
  }
}

// The Job of the JobSet, too. `pip install kubernetes-validate` has the schemas.
TEST(KubernetesManifests, AreWhatThePublishedSchemasDemand) {
  const char* const named = std::getenv("HOLDFAST_TEST_KUBERNETES_PYTHON");
  const std::string python = named != nullptr ? named : "python3";
  if (Subprocess(by_name({python, "-c", "import kubernetes_validate, yaml"})).wait().exit_code != 0) {
    GTEST_SKIP() << "no kubernetes-validate for " << python << " (PyPI)";
  }
  if (Subprocess(by_name({"kubectl", "kustomize", "--help"})).wait().exit_code != 0) {
    GTEST_SKIP() << "no kubectl here: it builds the kustomizations";
  }
  const std::string check = R"(
import subprocess, sys, pathlib, yaml, kubernetes_validate
examples, broken = pathlib.Path(sys.argv[1]), sys.argv[2:] == ["broken"]
foreign = {"PodMonitor", "JobSet"}
count = 0
def validate(document):
    global count
    if broken and document["kind"] == "Job":
        document["spec"]["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"] = "64"
    kubernetes_validate.validate(document, "1.31", strict=True)
    count += 1
for folder in sorted(path.parent for path in examples.glob("*/kustomization.yaml")):
    text = subprocess.run(["kubectl", "kustomize", folder], check=True, capture_output=True, text=True).stdout
    for document in yaml.safe_load_all(text):
        if document["kind"] not in foreign:
            validate(document)
jobset = yaml.safe_load((examples / "jobset/jobset.yaml").read_text())
for job in jobset["spec"]["replicatedJobs"]:
    validate({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]}, "spec": job["template"]["spec"]})
print(count, "documents")
)";
  const Ended good = Subprocess(by_name({python, "-c", check, kExamples.string()})).wait(5min);
  EXPECT_EQ(good.exit_code, 0) << good.err;
  EXPECT_THAT(good.out, HasSubstr("documents"));
  EXPECT_NE(Subprocess(by_name({python, "-c", check, kExamples.string(), "broken"})).wait(5min).exit_code, 0)
      << "a broken manifest passes";
}

// Without a cluster, what is applied is printed.
TEST(KubernetesManifests, AreThoseOfThePagesFirstBlock) {
  if (Subprocess(by_name({"kubectl", "kustomize", "--help"})).wait().exit_code != 0) {
    GTEST_SKIP() << "no kubectl here: it builds the kustomizations";
  }
  const Ended block =
      Subprocess(by_name({"bash", "-c",
                          "cd \"$1\" && sed '/^```sh/,/^```/!d; /^```sh/d; /^```/Q; s/apply -k/kustomize/' "
                          "examples/kubernetes/README.md | bash -eu",
                          "bash", HOLDFAST_SOURCE_DIR}))
          .wait(1min);
  EXPECT_EQ(block.exit_code, 0) << block.err;
  EXPECT_THAT(block.out, HasSubstr(R"({"name": "lr30")")) << "the experiments go with the Job";
}

// A node: another host name and boot id. The volume's root belongs to root and the pod's group, as fsGroup makes it.
class Kubelet : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "namespaces with another host name and boot id need root here";
    if (Subprocess(by_name({"unshare", "--pid", "--mount", "--uts", "--fork", "true"})).wait().exit_code !=
        0) {
      GTEST_SKIP() << "no namespaces here";
    }
    fs::permissions(folder_.path(), fs::perms::owner_all | fs::perms::others_exec | fs::perms::group_exec);
    fs::create_directory(volume());
    mount_volume();
  }
  fs::path volume() const { return folder_.path() / "volume"; }
  // What fsGroupChangePolicy: Always does at each mount, the worst case.
  void mount_volume() const {
    const std::string script =
        "chgrp -R 1000 \"$1\" && chmod -R g+rwX \"$1\" && find \"$1\" -type d -exec chmod g+s {} +";
    ASSERT_EQ(Subprocess({"/bin/sh", "-c", script, "sh", volume().string()}).wait().exit_code, 0);
  }
  // The container of base/job.yaml.
  std::unique_ptr<Subprocess> start_pod(const std::string& node) const {
    Words words = {HOLDFAST_BIN_DIR "/holdfast", "launch", "--nproc", "1", "--"};
    for (const std::string& word : driver(volume() / "train", kSteps, {"every=10", "pace-us=10000"}))
      words.push_back(word);
    return start_pod(node, words);
  }
  // A container's process 1, in a namespace of its own, as user 1000.
  std::unique_ptr<Subprocess> start_pod(const std::string& node, const Words& container,
                                        const std::map<std::string, std::string>& more = {}) const {
    const std::string boot_id = node + "-4000-8000-000000000000";
    write_text(folder_.path() / node, boot_id + "\n");
    const std::string prepare =
        "hostname \"$1\" && mount --bind \"$2\" /proc/sys/kernel/random/boot_id && "
        "mount --bind \"$3\" \"$3\" && shift 3 && "
        "exec setpriv --reuid 1000 --regid 1000 --groups 1000 --no-new-privs --bounding-set=-all \"$@\"";
    Words words = {"unshare",
                   "--pid",
                   "--mount",
                   "--uts",
                   "--fork",
                   "--kill-child",
                   "--mount-proc",
                   "--",
                   "/bin/sh",
                   "-c",
                   prepare,
                   "sh",
                   node,
                   (folder_.path() / node).string(),
                   volume().string()};
    words.insert(words.end(), container.begin(), container.end());
    std::map<std::string, std::string> environment{{"HOLDFAST_TERM_GRACE", "55s"},
                                                   {"HOLDFAST_SOURCES", "signal,file,deadline"},
                                                   {"KUBERNETES_SERVICE_HOST", "10.0.0.1"}};
    environment.insert(more.begin(), more.end());
    return std::make_unique<Subprocess>(by_name(words), environment);
  }
  static void signal_process_one(const Subprocess& pod, int signal) {
    const std::string pid = std::to_string(pod.pid());
    const int process_one = std::atoi(read_text("/proc/" + pid + "/task/" + pid + "/children").c_str());
    ASSERT_GT(process_one, 1);
    kill(process_one, signal);
  }
  bool commits(Subprocess& pod, const std::string& attempt, const std::string& run = "train") const {
    return pod.wait_until([&] {
      if (!fs::is_directory(volume() / run)) return false;
      for (const auto& file : fs::directory_iterator(volume() / run)) {
        const std::string name = file.path().filename();
        if (name.starts_with("step-") && name.ends_with(attempt + ".h5")) return true;
      }
      return false;
    });
  }

  // An index of sweep/runs.yaml: its command, with paths and a trainer of this machine.
  std::unique_ptr<Subprocess> start_index(int index, const std::string& node) const {
    const fs::path trainer = folder_.path() / "train";
    if (!fs::exists(trainer)) {
      write_text(trainer,
                 "#!/bin/sh\n[ \"$1 $3 $5 $7\" = '--lr --seed --checkpoint-dir --mount' ] || exit 64\n"
                 "exec " HOLDFAST_DRIVER " \"$6\" $(($4 * 20 + " +
                     std::to_string(kSteps) + ")) every=10 pace-us=10000\n");
      fs::permissions(trainer, fs::perms::owner_all | fs::perms::others_read | fs::perms::others_exec);
    }
    const std::map<std::string, std::string> here{
        {"holdfast", HOLDFAST_BIN_DIR "/holdfast"},
        {"/sweep/sweep.jsonl", (kExamples / "sweep/sweep.jsonl").string()},
        {"/runs", volume().string()},
        {"train", trainer.string()}};
    Words words;
    for (const char* const key : {"command", "args"}) {
      for (const std::string& word : list_in(kExamples / "sweep/runs.yaml", key)) {
        words.push_back(here.contains(word) ? here.at(word) : word);
      }
    }
    return start_pod(node, words, {{"JOB_COMPLETION_INDEX", std::to_string(index)}});
  }

  TemporaryFolder folder_;
};

TEST_F(Kubelet, ThatEndsAndKillsPodsLosesNothing) {
  auto pod = start_pod("aaaaaaaa-0000");
  ASSERT_TRUE(commits(*pod, "-a0001")) << pod->err();
  signal_process_one(*pod, SIGTERM);
  const Ended drained = pod->wait(60s);  // terminationGracePeriodSeconds
  EXPECT_EQ(drained.exit_code, 75) << drained.err;
  EXPECT_THAT(drained.out, HasSubstr("interrupted step="));

  mount_volume();
  pod = start_pod("bbbbbbbb-0000");
  ASSERT_TRUE(commits(*pod, "-a0002")) << pod->err();
  signal_process_one(*pod, SIGKILL);  // the node's power
  pod->wait();

  mount_volume();
  pod = start_pod("cccccccc-0000");
  const Ended ended = pod->wait(3min);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("resuming from step"));
  EXPECT_THAT(ended.out,
              HasSubstr("complete step=" + std::to_string(kSteps) + " state=" + straight_state(kSteps)));
}

// They would take the run from one another for ever if the one that has lost it were started again.
TEST_F(Kubelet, OfTwoJobsOnOneDirectoryEndsOne) {
  std::vector<std::unique_ptr<Subprocess>> pods;
  pods.push_back(start_pod("aaaaaaaa-0000"));
  ASSERT_TRUE(commits(*pods[0], "-a0001")) << pods[0]->err();
  pods.push_back(start_pod("bbbbbbbb-0000"));
  const Ended older = pods[0]->wait(1min);
  EXPECT_EQ(action_of(kExamples / "base/job.yaml", older.exit_code), "FailJob") << older.err;
  const Ended newer = pods[1]->wait(3min);
  EXPECT_EQ(newer.exit_code, 0) << newer.err;
}

TEST_F(Kubelet, WithFourIndexesEndsAndKillsEachAlone) {
  const Words names{"lr01", "lr03", "lr10", "lr30"};
  std::vector<std::unique_ptr<Subprocess>> pods;
  for (int i = 0; i < 4; ++i) pods.push_back(start_index(i, "aaaaaaaa-000" + std::to_string(i)));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(commits(*pods[i], "-a0001", names[i])) << pods[i]->err();
  // Nothing happens to index 0. 1 and 3 are drained, 2 and then 3 lose their nodes.
  for (const int i : {1, 3}) signal_process_one(*pods[i], SIGTERM);
  signal_process_one(*pods[2], SIGKILL);
  for (const int i : {1, 3}) EXPECT_EQ(pods[i]->wait(60s).exit_code, 75) << pods[i]->err();
  pods[2]->wait();
  mount_volume();
  for (const int i : {1, 2, 3}) pods[i] = start_index(i, "bbbbbbbb-000" + std::to_string(i));
  ASSERT_TRUE(commits(*pods[3], "-a0002", names[3])) << pods[3]->err();
  signal_process_one(*pods[3], SIGKILL);
  pods[3]->wait();
  pods[3] = start_index(3, "cccccccc-0003");
  for (int i = 0; i < 4; ++i) {
    const Ended ended = pods[i]->wait(3min);
    const int steps = kSteps + 20 * (i + 1);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_THAT(ended.out,
                HasSubstr("complete step=" + std::to_string(steps) + " state=" + straight_state(steps)));
    EXPECT_EQ(ended.err.find("resuming from step") != std::string::npos, i != 0) << ended.err;
  }
}

TEST_F(Kubelet, WithAnIndexBeyondTheFileFailsThatIndex) {
  const Ended ended = start_index(4, "aaaaaaaa-0004")->wait(1min);
  EXPECT_EQ(ended.exit_code, 64);
  EXPECT_THAT(ended.err, HasSubstr("JOB_COMPLETION_INDEX=4 is beyond sweep.jsonl"));
}

}}  // namespace holdfast::test
