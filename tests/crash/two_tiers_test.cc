// A trainer under `holdfast supervise --mirror`, whose machine vanishes again and again: each life begins with an
// empty disk, and the run ends with the bits of the uninterrupted one. Then what a user sees of it: endings,
// take-overs, a mirror that is killed, and a store behind rclone.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "crash/driver_run.h"
#include "holdfast/mirror/home_record.h"
#include "holdfast/store/names.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr std::int64_t kForEver = 1'000'000'000;

// All descendants of a process, youngest last.
std::vector<pid_t> tree_of(pid_t root) {
  std::vector<pid_t> all{root};
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::istringstream children(
        read_text("/proc/" + std::to_string(all[i]) + "/task/" + std::to_string(all[i]) + "/children"));
    for (pid_t child = 0; children >> child;) all.push_back(child);
  }
  return all;
}

// The machine vanishes: nobody ends properly.
void vanish(Subprocess& supervise) {
  for (const pid_t process : tree_of(supervise.pid())) kill(process, SIGSTOP);
  for (const pid_t process : tree_of(supervise.pid())) kill(process, SIGKILL);
  supervise.wait();
}

std::set<std::int64_t> steps_in(const fs::path& directory) {
  std::set<std::int64_t> steps;
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(directory, gone)) {
    if (const auto id = parse_checkpoint_name(entry.path().filename().native())) steps.insert(id->step);
  }
  return steps;
}
std::int64_t newest_in(const fs::path& directory) {
  const auto steps = steps_in(directory);
  return steps.empty() ? -1 : *steps.rbegin();
}

class TwoTiers : public testing::Test {
 protected:
  fs::path home() const { return folder_.path() / "home"; }
  fs::path disk(int life) const { return folder_.path() / ("disk" + std::to_string(life)); }
  static std::vector<std::string> supervise(const fs::path& directory, const std::string& home,
                                            std::int64_t steps,
                                            std::vector<std::string> more = {"every=10", "keep=3",
                                                                             "pace-us=1000"}) {
    std::vector<std::string> command{HOLDFAST_BIN_DIR "/holdfast",
                                     "supervise",
                                     "--directory",
                                     directory.native(),
                                     "--mirror",
                                     home,
                                     "--first-delay",
                                     "1ms",
                                     "--"};
    for (const std::string& word : driver(directory, steps, more)) command.push_back(word);
    return command;
  }
  static Ended holdfast(std::vector<std::string> words) {
    words.insert(words.begin(), HOLDFAST_BIN_DIR "/holdfast");
    return Subprocess(words).wait();
  }
  // The newest step that the mirror of that disk knows to be home.
  std::int64_t told_home(int life) const {
    const auto record = home_record_from_json(read_text(disk(life) / kHomeStateName));
    return record && record->newest ? record->newest->step : -1;
  }
  // The newest checkpoint there; -1: none.
  static std::int64_t newest_at(const std::string& place) {
    if (!place.starts_with("rclone:")) return newest_in(place);
    std::int64_t newest = -1;
    const Ended listed =
        Subprocess({"/usr/bin/env", "rclone", "lsf", "--files-only", place.substr(7)}).wait();
    for (const std::string& name : lines_of(listed.out)) {
      if (const auto id = parse_checkpoint_name(name)) newest = std::max(newest, id->step);
    }
    return newest;
  }
  // Lives on disks that are wiped, until the run is complete.
  void run_through(const std::string& place, int lives) const {
    std::int64_t steps = -1;
    for (int life = 0; life < lives; ++life) {
      Subprocess machine(supervise(disk(life), place, kForEver));
      ASSERT_TRUE(machine.wait_until([&] { return told_home(life) > steps + 15; }, 180s)) << machine.err();
      vanish(machine);
      EXPECT_GE(last_step(machine.out(), "started"), steps < 0 ? 0 : steps) << "what was home was lost";
      steps = told_home(life);
      fs::remove_all(disk(life));
    }
    const std::int64_t last = newest_at(place) + 25;
    const Ended ended = Subprocess(supervise(disk(lives), place, last)).wait();
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_GE(last_step(ended.out, "started"), steps) << "what was home was lost";
    EXPECT_EQ(newest_at(place), last) << ended.err;
    fs::remove_all(disk(lives));
    // A machine that comes once more finds the end, and its bits.
    const Ended again = Subprocess(supervise(disk(lives + 1), place, last)).wait();
    EXPECT_EQ(again.exit_code, 0) << again.err;
    EXPECT_EQ(state_in(again.last_line()), straight_state(last, {"every=10"}));
    EXPECT_EQ(last_step(again.out, "started"), last);
  }
  // The number after `before` in what a server says when it listens; empty: it does not.
  static std::string port_of(Subprocess& server, const std::string& before) {
    std::string port;
    const bool listens = server.wait_until([&] {
      const std::string said = server.err() + server.out();
      const std::size_t at = said.find(before);
      if (at == std::string::npos) return false;
      const std::size_t begin = at + before.size();
      const std::size_t end = said.find_first_not_of("0123456789", begin);
      port = end == std::string::npos ? "" : said.substr(begin, end - begin);
      return !port.empty();
    });
    return listens ? port : "";
  }

  TemporaryFolder folder_;
};

TEST_F(TwoTiers, LivesOnWipedDisksEndWithTheSameBits) { run_through(home().native(), nightly() ? 50 : 3); }

TEST_F(TwoTiers, LivesOnWipedDisksWithAStoreBehindRclone) {
  if (system("rclone version >/dev/null 2>&1") != 0) GTEST_SKIP() << "rclone is not installed";
  run_through("rclone::local:" + home().native(), nightly() ? 20 : 1);
}

// --resume-from in a command that is repeated. The chosen file is soon nowhere: neither here nor at home.
TEST_F(TwoTiers, AChosenStepIsBranchedFromOnceAlsoOnNewDisks) {
  ASSERT_EQ(drive(disk(0), 40, {"every=10", "keep=3", "wait"}).exit_code, 0);
  const std::vector<std::string> chosen{"every=10", "keep=3", "pace-us=1000", "from=30"};
  std::int64_t steps = 30;
  for (int life = 0; life < 3; ++life) {
    Subprocess machine(supervise(disk(life), home().native(), kForEver, chosen));
    ASSERT_TRUE(machine.wait_until([&] { return told_home(life) > steps + 60; }, 180s)) << machine.err();
    vanish(machine);
    const std::int64_t started = last_step(machine.out(), "started");
    EXPECT_GE(started, steps) << "life " << life;
    if (life == 0) {
      EXPECT_EQ(started, 30);
    }
    steps = told_home(life);
    fs::remove_all(disk(life));
  }
  const std::int64_t last = newest_in(home()) + 25;
  const Ended ended = Subprocess(supervise(disk(3), home().native(), last, chosen)).wait();
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(state_in(ended.last_line()), straight_state(last, {"every=10"}));
}

TEST_F(TwoTiers, SigtermEndsWithTheNewestAtHome) {
  Subprocess machine(supervise(disk(0), home().native(), kForEver));
  ASSERT_TRUE(machine.wait_until([&] { return newest_in(home()) > 0; })) << machine.err();
  machine.send(SIGTERM);
  const Ended ended = machine.wait();
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_EQ(newest_in(home()), newest_in(disk(0))) << ended.err;
  EXPECT_EQ(newest_in(home()), last_step(ended.out, "interrupted"));
}

TEST_F(TwoTiers, AMirrorThatIsKilledIsStartedAgain) {
  Subprocess machine(supervise(disk(0), home().native(), kForEver));
  ASSERT_TRUE(machine.wait_until([&] { return newest_in(home()) > 0; })) << machine.err();
  for (const pid_t process : tree_of(machine.pid())) {
    if (read_text("/proc/" + std::to_string(process) + "/comm") == "holdfast-mirror\n")
      kill(process, SIGKILL);
  }
  const std::int64_t before = newest_in(disk(0));
  EXPECT_TRUE(machine.wait_until([&] { return newest_in(home()) > before; })) << machine.err();
  machine.send(SIGTERM);
  const Ended ended = machine.wait();
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_EQ(newest_in(home()), newest_in(disk(0))) << ended.err;
}

TEST_F(TwoTiers, AMachineThatTakesOverEndsTheFirstWith76) {
  Subprocess first(supervise(disk(0), home().native(), kForEver));
  ASSERT_TRUE(first.wait_until([&] { return newest_in(home()) > 0; })) << first.err();
  Subprocess second(supervise(disk(1), home().native(), kForEver));
  const Ended ended = first.wait(180s);
  EXPECT_EQ(ended.exit_code, 76) << ended.err;
  const std::int64_t before = newest_in(home());
  EXPECT_TRUE(second.wait_until([&] { return newest_in(home()) > before; })) << second.err();
  second.send(SIGTERM);
  EXPECT_EQ(second.wait().exit_code, 75);
}

TEST_F(TwoTiers, AHomeThatRefusesStopsNoTraining) {
  Subprocess machine(supervise(disk(0), home().native(), kForEver));
  ASSERT_TRUE(machine.wait_until([&] { return newest_in(home()) > 0; })) << machine.err();
  fs::rename(home(), folder_.path() / "away");
  write_text(home(), "no directory\n");
  const std::int64_t before = newest_in(disk(0));
  EXPECT_TRUE(machine.wait_until([&] { return newest_in(disk(0)) > before + 100; })) << machine.err();
  fs::remove(home());
  fs::rename(folder_.path() / "away", home());
  const std::int64_t then = newest_in(disk(0));
  EXPECT_TRUE(machine.wait_until([&] { return newest_in(home()) > then; })) << machine.err();
  machine.send(SIGTERM);
  EXPECT_EQ(machine.wait().exit_code, 75);
}

// The hook may give the machine back, and its disk holds the only copy of the last checkpoint.
TEST_F(TwoTiers, ACompleteRunThatIsNotHomeRunsNoHook) {
  constexpr std::int64_t kLast = 1500;
  const fs::path hook = folder_.path() / "hook ran";
  std::vector<std::string> command = supervise(disk(0), home().native(), kLast);
  command.insert(std::find(command.begin(), command.end(), "--"),
                 {"--on-complete", "touch '" + hook.native() + "'"});
  Subprocess machine(command);
  ASSERT_TRUE(machine.wait_until([&] { return newest_in(home()) > 0; })) << machine.err();
  fs::rename(home(), folder_.path() / "away");
  write_text(home(), "no directory\n");
  ASSERT_TRUE(machine.wait_until([&] {
    return machine.err().find("waiting until the newest") != std::string::npos;
  })) << machine.err();
  machine.send(SIGTERM);
  std::this_thread::sleep_for(100ms);
  machine.send(SIGTERM);  // nobody wants to wait for the end of the grace period
  const Ended ended = machine.wait();
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_NE(ended.err.find("--on-complete does not run"), std::string::npos) << ended.err;
  EXPECT_FALSE(fs::exists(hook));
  EXPECT_EQ(newest_in(disk(0)), kLast);
}

TEST_F(TwoTiers, StatusAndLsTellWhatIsHome) {
  const Ended ended = Subprocess(supervise(disk(0), home().native(), 30)).wait();
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Ended status = holdfast({"status", disk(0).native()});
  EXPECT_NE(status.out.find("home"), std::string::npos) << status.out;
  EXPECT_NE(status.out.find("step 30 in " + home().native()), std::string::npos) << status.out;
  const Ended ls = holdfast({"ls", disk(0).native()});
  EXPECT_NE(ls.out.find("home in " + home().native() + ": step-000000000030"), std::string::npos) << ls.out;
  // The home is a run directory.
  EXPECT_EQ(holdfast({"verify", home().native()}).exit_code, 0);
  EXPECT_EQ(last_step(drive(home(), 40, {"every=10"}).out, "started"), 30);
}

TEST_F(TwoTiers, FetchAndMirrorByHand) {
  const fs::path one = disk(0);
  ASSERT_EQ(drive(one, 20, {"every=10"}).exit_code, 0);
  const Ended copied = holdfast({"mirror", one.native(), "--to", home().native(), "--once"});
  EXPECT_EQ(copied.exit_code, 0) << copied.err;
  EXPECT_EQ(newest_in(home()), 20);
  const Ended fetched = holdfast({"fetch", disk(1).native(), "--from", home().native()});
  EXPECT_EQ(fetched.exit_code, 0) << fetched.err;
  EXPECT_NE(fetched.out.find("step 20 of attempt 1 was fetched"), std::string::npos) << fetched.out;
  EXPECT_EQ(last_step(drive(disk(1), 30, {"every=10"}).out, "started"), 20);
  EXPECT_EQ(holdfast({"mirror", one.native(), "--to", home().native(), "--once"}).exit_code, 76);
  EXPECT_EQ(holdfast({"mirror", one.native(), "--to", "rclone:s3", "--once"}).exit_code, 64);
  EXPECT_EQ(holdfast({"mirror", one.native(), "--to", home().native(), "--home-keep", "1"}).exit_code, 64);
  EXPECT_EQ(holdfast({"supervise", "--mirror", home().native(), "--", "true"}).exit_code, 64);
}

TEST_F(TwoTiers, TheMirrorNeedsLittleMemory) {
  ASSERT_EQ(drive(disk(0), 10, {"every=10", "elements=15000000"}).exit_code, 0);
  const std::string status_file = (folder_.path() / "peak").native();
  const std::string script =
      HOLDFAST_BIN_DIR "/holdfast mirror " + disk(0).native() + " --to " + home().native() +
      " & p=$!; while kill -0 $p 2>/dev/null; do grep VmHWM /proc/$p/status >" + status_file +
      ".new 2>/dev/null && cp " + status_file + ".new " + status_file + "; [ -n \"$(ls " + home().native() +
      "/step-* 2>/dev/null)\" ] && kill $p; sleep 0.02; done";
  ASSERT_EQ(Subprocess({"/bin/sh", "-c", script}).wait().exit_code, 0);
  std::istringstream line(read_text(status_file));
  std::string name;
  std::int64_t kib = 0;
  line >> name >> kib;
  EXPECT_GT(fs::file_size(home() / checkpoint_name({.attempt = 1, .step = 10})), 100'000'000U);
  EXPECT_GT(kib, 1000);
  EXPECT_LT(kib, 64 * 1024) << "peak of a mirror";
  RecordProperty("peak_kib", static_cast<int>(kib));
}

// Servers of real interfaces: each life begins on an empty disk.

// S3 itself, as far as moto plays it.
TEST_F(TwoTiers, LivesOnWipedDisksWithAnS3Bucket) {
  if (system("rclone version >/dev/null 2>&1") != 0) GTEST_SKIP() << "rclone is not installed";
  std::string moto = HOLDFAST_SOURCE_DIR "/.deps/aws/bin/moto_server";
  if (system((moto + " --help >/dev/null 2>&1").c_str()) != 0) moto = "moto_server";
  if (system((moto + " --help >/dev/null 2>&1").c_str()) != 0) {
    GTEST_SKIP() << "moto_server is neither in .deps/aws (cmake/bootstrap --aws) nor in PATH";
  }
  Subprocess server({"/bin/sh", "-c", "exec '" + moto + "' -H 127.0.0.1 -p 0"}, {{"PYTHONUNBUFFERED", "1"}});
  const std::string port = port_of(server, "Running on http://127.0.0.1:");
  ASSERT_NE(port, "") << server.err();
  unsetenv("AWS_CA_BUNDLE");  // rclone 1.60 refuses to start with one
  setenv("RCLONE_CONFIG_MOTO_TYPE", "s3", 1);
  setenv("RCLONE_CONFIG_MOTO_PROVIDER", "Other", 1);
  setenv("RCLONE_CONFIG_MOTO_ENDPOINT", ("http://127.0.0.1:" + port).c_str(), 1);
  setenv("RCLONE_CONFIG_MOTO_ACCESS_KEY_ID", "testing", 1);
  setenv("RCLONE_CONFIG_MOTO_SECRET_ACCESS_KEY", "testing", 1);
  ASSERT_EQ(system("rclone mkdir moto:bucket >/dev/null 2>&1"), 0);
  run_through("rclone:moto:bucket/run", nightly() ? 10 : 1);
}

TEST_F(TwoTiers, LivesOnWipedDisksWithAWebDavServer) {
  if (!nightly()) GTEST_SKIP() << "by day rclone meets a directory and S3: HOLDFAST_NIGHTLY=1";
  if (system("rclone serve webdav --help >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "no rclone that serves WebDAV is installed";
  }
  fs::create_directories(home());
  Subprocess server({"/usr/bin/env", "rclone", "serve", "webdav", home().native(), "--addr", "127.0.0.1:0"});
  const std::string port = port_of(server, "started on http://127.0.0.1:");
  ASSERT_NE(port, "") << server.err();
  run_through("rclone::webdav,url=\"http://127.0.0.1:" + port + "\":run", nightly() ? 10 : 1);
}

TEST_F(TwoTiers, LivesOnWipedDisksWithAnSftpServer) {
  if (!nightly()) GTEST_SKIP() << "by day rclone meets a directory and S3: HOLDFAST_NIGHTLY=1";
  if (system("rclone serve sftp --help >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "no rclone that serves SFTP is installed";
  }
  fs::create_directories(home());
  Subprocess server({"/usr/bin/env", "rclone", "serve", "sftp", home().native(), "--addr", "127.0.0.1:0",
                     "--user", "u", "--pass", "secret"});
  const std::string port = port_of(server, "listening on 127.0.0.1:");
  ASSERT_NE(port, "") << server.err();
  const std::string password = Subprocess({"/usr/bin/env", "rclone", "obscure", "secret"}).wait().last_line();
  run_through("rclone::sftp,host=127.0.0.1,port=" + port + ",user=u,pass=" + password + ":run",
              nightly() ? 10 : 1);
}

}}  // namespace holdfast::test
