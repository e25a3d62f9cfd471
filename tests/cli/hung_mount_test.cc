// `holdfast supervise` over a volume whose server is gone: a mount of the kernel's own (FUSE) that nobody
// serves. Whoever touches it waits in the kernel until it is killed, as on a hard NFS mount.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>

#include "cli/supervised.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "support/memory_source.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::HasSubstr;

using Words = std::vector<std::string>;

class HungMount : public testing::Test {
 protected:
  HungMount() { fs::create_directory(hung_); }
  ~HungMount() override {
    if (child_ > 0) kill(child_, SIGKILL), waitpid(child_, nullptr, 0);
    if (device_ >= 0) close(device_);
  }
  void SetUp() override {
    start({"/bin/true"});
    const Ended ended = wait();
    if (ended.exit_code != 0)
      GTEST_SKIP() << "nothing can be mounted here: " << std::strerror(ended.exit_code);
  }

  // In a mount namespace of its own. The mount lives as long as the descriptor, which is good for one.
  void start(const Words& command) {
    if (device_ >= 0) close(device_);
    device_ = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    const std::string options = "fd=" + std::to_string(device_) + ",rootmode=40000,user_id=0,group_id=0";
    child_ = start_program(command, environment_, folder_.path(), [&] {
      if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          mount("hung", hung_.c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) != 0) {
        _exit(errno);
      }
    });
  }
  void supervise(Words words, const Words& child) {
    words.insert(words.begin(), {HOLDFAST_BIN_DIR "/holdfast", "supervise"});
    words.emplace_back("--");
    words.insert(words.end(), child.begin(), child.end());
    start(words);
  }
  // A trainer that commits and leaves when it is told to.
  Words trainer() const {
    return {"/bin/sh", "-c",
            "cd '" + folder_.path().string() +
                "'; trap 'echo TERM >>heard; exit 75' TERM; : >ready; n=0; until [ $n -ge 6000 ]; do sleep "
                "0.01; n=$((n+1)); done"};
  }
  // False after half a minute, which is six times what the supervisor allows itself.
  static bool soon(const std::function<bool()>& condition) {
    const auto limit = std::chrono::steady_clock::now() + 30s;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > limit) return false;
      usleep(1000);
    }
    return true;
  }
  bool there(const std::string& file) const { return fs::exists(folder_.path() / file); }
  std::string err() const { return read_text(folder_.path() / "err"); }
  Words heard() const { return lines_of(read_text(folder_.path() / "heard")); }
  void send(int signal) const { kill(child_, signal); }
  // A signal of -1: it did not end.
  Ended wait() {
    int status = 0;
    if (!soon([&] { return waitpid(child_, &status, WNOHANG) == child_; }))
      return {.signal = -1, .out = {}, .err = {}};
    child_ = -1;
    return ended_with(status, folder_.path());
  }

  // A trainer whose step stands still, before `hang`; its later lives do nothing.
  Words hanging(const std::string& hang) const {
    return {"/bin/sh", "-c",
            "cd '" + folder_.path().string() +
                "'; echo life >>lives; n=$(wc -l <lives); [ $n -lt 2 ] || exit 64; "
                "echo \"{\\\"supervisor\\\": \\\"$HOLDFAST_SUPERVISOR\\\"}\" >good/run/attempts/1; " +
                standstill_in("good/run/ledger-a0001.jsonl") + hang};
  }

  static void make_checkpoint(const fs::path& run) {
    CheckpointerOptions options;
    options.directory = run;
    options.every = {};
    options.notices.hear_signals = false;
    MemorySource source;
    Checkpointer checkpointer(source, options);
    checkpointer.resume();
    while (source.step() < 4) checkpointer.after_step(source.train());
    checkpointer.finish();
  }

  TemporaryFolder folder_;
  std::map<std::string, std::string> environment_;
  const fs::path hung_ = folder_.path() / "hung";

 private:
  int device_ = -1;
  pid_t child_ = -1;
};

TEST_F(HungMount, IsNoReasonNotToHearASigtermAtTheStart) {
  supervise({"--directory", (hung_ / "run").string()}, trainer());
  ASSERT_TRUE(soon([&] {
    return err().find("waiting for " + (hung_ / "run").string()) != std::string::npos;
  })) << "it says what it waits for: "
      << err();
  send(SIGTERM);
  EXPECT_EQ(wait().exit_code, 75) << err();
  EXPECT_FALSE(there("ready"));
}

TEST_F(HungMount, IsDoneWithoutAfterAWhile) {
  supervise({"--directory", (hung_ / "run").string(), "--directory-timeout", "100ms"}, trainer());
  ASSERT_TRUE(soon([&] { return there("ready"); })) << err();
  EXPECT_THAT(err(), HasSubstr((hung_ / "run").string() + " does not answer"));
  send(SIGTERM);
  EXPECT_EQ(wait().exit_code, 75) << err();
  EXPECT_THAT(heard(), testing::ElementsAre("TERM"));
}

// `volume` is a link, so that it can be taken away.
TEST_F(HungMount, ThatHangsWhileTheCommandRunsStopsNoSignal) {
  fs::create_directories(folder_.path() / "good/run");
  fs::create_symlink("good", folder_.path() / "volume");
  fs::create_symlink("hung", folder_.path() / "gone");
  supervise({"--directory", (folder_.path() / "volume/run").string(), "--stall-timeout", "4s"}, trainer());
  ASSERT_TRUE(soon([&] { return there("ready"); })) << err();
  fs::rename(folder_.path() / "gone", folder_.path() / "volume");
  sleep(3);  // the ledger is looked at every second
  send(SIGTERM);
  EXPECT_TRUE(soon([&] { return !heard().empty(); })) << "it is passed on at once";
  EXPECT_EQ(wait().exit_code, 75) << err();
  EXPECT_THAT(err(), HasSubstr("does not answer"));
}

// Of `supervise --mirror`. What it says of another kind of outage holds: DIR has a good checkpoint.
TEST_F(HungMount, AsHomeIsDoneWithoutAfterAWhile) {
  const fs::path run = folder_.path() / "run";
  const auto start_it = [&](const std::string& home) {
    supervise(
        {"--directory", run.native(), "--mirror", home, "--home-wait", "1s", "--directory-timeout", "1s"},
        {"/bin/sh", "-c", "echo life >>'" + (folder_.path() / "lives").native() + "'; exit 64"});
  };
  start_it((hung_ / "home").native());
  const Ended fresh = wait();
  EXPECT_EQ(fresh.exit_code, 74) << fresh.err;
  EXPECT_THAT(fresh.err, HasSubstr("a fresh start could train the run a second time"));
  EXPECT_FALSE(there("lives"));
  make_checkpoint(run);
  start_it((hung_ / "home").native());
  ASSERT_TRUE(soon([&] { return err().find("waiting until the newest") != std::string::npos; })) << err();
  send(SIGTERM);
  send(SIGINT);  // it waits no longer until all is home
  const Ended alone = wait();
  EXPECT_EQ(alone.exit_code, 64) << alone.err;
  EXPECT_THAT(alone.err, HasSubstr("the run goes on alone from step 4"));
  EXPECT_TRUE(there("lives"));
}

TEST_F(HungMount, IsNamedInTheEvidenceOfAStall) {
  fs::create_directories(folder_.path() / "good/run/attempts");
  environment_["HOLDFAST_TERM_GRACE"] = "100ms";
  supervise({"--directory", (folder_.path() / "good/run").string(), "--stall-timeout", "20s", "--first-delay",
             "1ms"},
            hanging("exec " HOLDFAST_STALLED_PROGRAM " volume '" + (hung_ / "x").string() + "'"));
  EXPECT_EQ(wait().exit_code, 64) << err();
  EXPECT_THAT(
      read_text(folder_.path() / "good/run/attempts/1.stall.txt"),
      testing::ContainsRegex("thread [0-9]+ stalled: state .*waits in (request_wait|fuse).*, in newfstatat"));
  EXPECT_THAT(read_text(folder_.path() / "lives"), HasSubstr("life\nlife\n")) << "it was started again";
}

// It hangs when the evidence is to be written.
TEST_F(HungMount, DoesNotKeepAStalledTrainingFromItsRestart) {
  fs::create_directories(folder_.path() / "good/run/attempts");
  fs::create_symlink("good", folder_.path() / "volume");
  fs::create_symlink("hung", folder_.path() / "gone");
  fs::create_directories(folder_.path() / "tools");
  write_text(folder_.path() / "tools/eu-stack",
             "#!/bin/sh\ncd '" + folder_.path().string() + "'; mv -T gone volume\n");
  fs::permissions(folder_.path() / "tools/eu-stack", fs::perms::owner_all);
  environment_ = {{"HOLDFAST_TERM_GRACE", "100ms"},
                  {"TMPDIR", folder_.path().string()},
                  {"PATH", (folder_.path() / "tools").string() + ":" + std::getenv("PATH")}};
  supervise({"--directory", (folder_.path() / "volume/run").string(), "--stall-timeout", "20s",
             "--first-delay", "1ms", "--directory-timeout", "100ms"},
            hanging("exec " HOLDFAST_STALLED_PROGRAM " deadlock"));
  EXPECT_EQ(wait().exit_code, 64) << err();
  EXPECT_THAT(read_text(folder_.path() / "lives"), HasSubstr("life\nlife\n")) << "it was started again";
  EXPECT_THAT(err(), testing::ContainsRegex("stall is in " + folder_.path().string() +
                                            "/holdfast-stall-.*does not answer"));
}

TEST_F(HungMount, WithTheCommandOnItStopsNoSignalEither) {
  supervise({}, {(hung_ / "train").string()});
  ASSERT_TRUE(soon([&] { return err().find("supervising process") != std::string::npos; })) << err();
  send(SIGTERM);
  EXPECT_EQ(wait().exit_code, 128 + SIGTERM) << err();
}

}}  // namespace holdfast::test
