// Helpers on the machine where a run with a HOME trains: none of them ends that run. Another machine still does,
// also one whose disk is a copy of this one's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>

#include "crash/driver_run.h"
#include "holdfast/store/names.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr std::int64_t kForEver = 1'000'000'000;
constexpr int kRefused = 2;

std::int64_t newest_in(const fs::path& directory) {
  std::int64_t newest = -1;
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(directory, gone)) {
    if (const auto id = parse_checkpoint_name(entry.path().filename().native()))
      newest = std::max(newest, id->step);
  }
  return newest;
}

class OneMachine : public testing::Test {
 protected:
  fs::path home() const { return folder_.path() / "home"; }
  fs::path disk() const { return folder_.path() / "disk"; }
  std::vector<std::string> trainer(std::int64_t steps = kForEver) const {
    return driver(disk(), steps, {"every=10", "keep=3", "pace-us=1000"});
  }
  std::vector<std::string> supervised(const std::vector<std::string>& command) const {
    std::vector<std::string> words{HOLDFAST_BIN_DIR "/holdfast",
                                   "supervise",
                                   "--directory",
                                   disk().native(),
                                   "--mirror",
                                   home().native(),
                                   "--first-delay",
                                   "1ms",
                                   "--"};
    words.insert(words.end(), command.begin(), command.end());
    return words;
  }
  static std::vector<std::string> words(std::vector<std::string> more) {
    more.insert(more.begin(), HOLDFAST_BIN_DIR "/holdfast");
    return more;
  }
  static Ended holdfast(const std::vector<std::string>& more) {
    return Subprocess(words(more), quiet()).wait();
  }
  Ended mirror_once() const {
    return holdfast({"mirror", disk().native(), "--to", home().native(), "--once"});
  }
  Ended fetch() const { return holdfast({"fetch", disk().native(), "--from", home().native()}); }
  Ended prune(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all{"prune", disk().native(), "--keep", "last=2", "--home", home().native()};
    all.insert(all.end(), more.begin(), more.end());
    return holdfast(all);
  }
  static void expect_one_line(const Ended& ended, int code, const std::string& why) {
    EXPECT_EQ(ended.exit_code, code) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(why));
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
  }
  // Something newer than now gets home: the run and its mirror are alive, and one another's.
  testing::AssertionResult goes_on(Subprocess& machine) const {
    const std::int64_t before = newest_in(disk());
    if (machine.wait_until([&] { return newest_in(home()) > before; })) return testing::AssertionSuccess();
    return testing::AssertionFailure() << machine.err();
  }

  TemporaryFolder folder_;
};

TEST_F(OneMachine, NoHelperEndsASupervisedRun) {
  Subprocess machine(supervised(trainer()));
  ASSERT_TRUE(machine.wait_until([&] { return newest_in(home()) > 0; })) << machine.err();
  expect_one_line(mirror_once(), kRefused, "another mirror on this machine");
  EXPECT_TRUE(goes_on(machine));
  expect_one_line(fetch(), kRefused, "trains there (process ");
  EXPECT_TRUE(goes_on(machine));
  EXPECT_EQ(prune().exit_code, 2) << "a run is alive";
  EXPECT_TRUE(goes_on(machine));
  // The plan of a prune shows what would go before it turns to HOME.
  const Ended forced = prune({"--even-if-running"});
  EXPECT_NE(forced.exit_code, 0);
  EXPECT_THAT(forced.err, HasSubstr("another mirror on this machine"));
  EXPECT_TRUE(goes_on(machine));
  machine.send(SIGTERM);
  const Ended ended = machine.wait();
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_EQ(newest_in(home()), newest_in(disk()));
}

// Its next start claims by itself.
TEST_F(OneMachine, NoFetchBesideASupervisorThatHasNoTrainerJustNow) {
  ASSERT_EQ(drive(disk(), 20, {"every=10"}).exit_code, 0);
  Subprocess machine(supervised({"/bin/sh", "-c", "echo up; sleep 600"}));
  ASSERT_TRUE(machine.wait_until([&] { return machine.out().find("up") != std::string::npos; }))
      << machine.err();
  expect_one_line(fetch(), kRefused, "fetches before each start by itself");
  expect_one_line(mirror_once(), kRefused, "another mirror on this machine");
  EXPECT_NE(prune().exit_code, 0);
  machine.send(SIGTERM);
  EXPECT_NE(machine.wait().exit_code, 76) << machine.err();
  // Nobody is there any more.
  const Ended mirrored = mirror_once();
  EXPECT_EQ(mirrored.exit_code, 0) << mirrored.err;
  EXPECT_EQ(fetch().exit_code, 0);
  EXPECT_EQ(prune().exit_code, 0);
}

TEST_F(OneMachine, TwoMirrorsByHandFromBeforeTheFirstCheckpoint) {
  const auto by_hand = words({"mirror", disk().native(), "--to", home().native()});
  Subprocess one(by_hand, quiet());
  Subprocess two(by_hand, quiet());
  Subprocess run(trainer());
  ASSERT_TRUE(run.wait_until([&] { return newest_in(home()) > 100; })) << run.err() << one.err() << two.err();
  const auto refused = [](Subprocess& mirror) {
    return mirror.err().find("another mirror") != std::string::npos;
  };
  ASSERT_TRUE(run.wait_until([&] { return refused(one) || refused(two); })) << "both mirror";
  Subprocess& second = refused(one) ? one : two;
  Subprocess& first = refused(one) ? two : one;
  expect_one_line(second.wait(), kRefused, "another mirror on this machine");
  EXPECT_TRUE(goes_on(run));
  run.send(SIGTERM);
  EXPECT_EQ(run.wait().exit_code, 75) << "superseded by a mirror of its own";
  first.send(SIGTERM);
  EXPECT_EQ(first.wait().exit_code, 0) << first.err();
  EXPECT_EQ(newest_in(home()), newest_in(disk()));
}

TEST_F(OneMachine, ASupervisorWaitsUntilAMirrorThatSomebodyStartedEnds) {
  ASSERT_EQ(drive(disk(), 20, {"every=10"}).exit_code, 0);
  Subprocess helper(words({"mirror", disk().native(), "--to", home().native()}));
  ASSERT_TRUE(helper.wait_until([&] { return newest_in(home()) == 20; })) << helper.err();
  Subprocess machine(supervised(trainer()));
  ASSERT_TRUE(machine.wait_until([&] {
    return machine.err().find("waiting until it ends") != std::string::npos;
  })) << machine.err();
  helper.send(SIGTERM);
  EXPECT_EQ(helper.wait().exit_code, 0) << helper.err();
  EXPECT_TRUE(goes_on(machine));
  machine.send(SIGTERM);
  EXPECT_EQ(machine.wait().exit_code, 75) << machine.err();
}

// No lock is in an image of a disk, and its record names claims that it shares with the disk it was taken from. So
// its mirror claims a number of its own, and the run that it was taken from ends.
TEST_F(OneMachine, AnImageOfTheDiskIsAnotherMachine) {
  Subprocess machine(supervised(trainer()));
  ASSERT_TRUE(machine.wait_until([&] { return newest_in(home()) > 0; })) << machine.err();
  const fs::path image = folder_.path() / "image";
  fs::create_directories(image / kAttemptsDirectory);
  // What an image has: files that are whole, at one moment.
  for (const auto& entry : fs::recursive_directory_iterator(disk())) {
    std::error_code gone;
    if (entry.is_regular_file(gone))
      fs::copy_file(entry.path(), image / fs::relative(entry.path(), disk()), gone);
  }
  Subprocess other(words({"mirror", image.native(), "--to", home().native()}));
  EXPECT_EQ(machine.wait(120s).exit_code, 76) << other.err();
  other.send(SIGKILL);
  other.wait();
}

}}  // namespace holdfast::test
