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

TEST(KubernetesManifests, KeepFiveSecondsOfTheGracePeriod) {
  for (const char* const file : {"base/job.yaml", "jobset/jobset.yaml", "spot-eks/pool.yaml",
                                 "spot-gke/pool.yaml", "spot-aks/pool.yaml"}) {
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
  // The container of base/job.yaml, process 1 of its own namespace, as user 1000.
  std::unique_ptr<Subprocess> start_pod(const std::string& node) const {
    const std::string boot_id = node + "-4000-8000-000000000000";
    write_text(folder_.path() / node, boot_id + "\n");
    const std::string prepare =
        "hostname \"$1\" && mount --bind \"$2\" /proc/sys/kernel/random/boot_id && shift 2 && "
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
                   HOLDFAST_BIN_DIR "/holdfast",
                   "launch",
                   "--nproc",
                   "1",
                   "--"};
    for (const std::string& word : driver(volume() / "train", kSteps, {"every=10", "pace-us=10000"}))
      words.push_back(word);
    return std::make_unique<Subprocess>(
        by_name(words), std::map<std::string, std::string>{{"HOLDFAST_TERM_GRACE", "55s"},
                                                           {"HOLDFAST_SOURCES", "signal,file,deadline"},
                                                           {"KUBERNETES_SERVICE_HOST", "10.0.0.1"}});
  }
  static void signal_process_one(const Subprocess& pod, int signal) {
    const std::string pid = std::to_string(pod.pid());
    const int process_one = std::atoi(read_text("/proc/" + pid + "/task/" + pid + "/children").c_str());
    ASSERT_GT(process_one, 1);
    kill(process_one, signal);
  }
  bool commits(Subprocess& pod, const std::string& attempt) const {
    return pod.wait_until([&] {
      for (const auto& entry : fs::directory_iterator(volume())) {
        if (!fs::is_directory(entry.path())) continue;
        for (const auto& file : fs::directory_iterator(entry.path())) {
          const std::string name = file.path().filename();
          if (name.starts_with("step-") && name.ends_with(attempt + ".h5")) return true;
        }
      }
      return false;
    });
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

}}  // namespace holdfast::test
