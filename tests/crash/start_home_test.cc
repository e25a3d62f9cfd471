// A trainer that starts from a second place by itself, with `holdfast mirror` beside it, and starts in bad weather.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "crash/driver_run.h"
#include "holdfast/store/names.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr std::int64_t kForEver = 1'000'000'000;

std::int64_t newest_in(const fs::path& directory) {
  std::int64_t newest = -1;
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(directory, gone)) {
    if (const auto id = parse_checkpoint_name(entry.path().filename().native()))
      newest = std::max(newest, id->step);
  }
  return newest;
}

class StartHome : public testing::Test {
 protected:
  fs::path home() const { return folder_.path() / "home"; }
  fs::path disk(int life) const { return folder_.path() / ("disk" + std::to_string(life)); }
  std::vector<std::string> trainer(int life, std::int64_t steps) const {
    return driver(disk(life), steps, {"every=10", "keep=3", "pace-us=1000", "homed=1"});
  }
  std::vector<std::string> mirror(int life) const {
    return {HOLDFAST_BIN_DIR "/holdfast", "mirror", disk(life).native(), "--to", home().native()};
  }
  TemporaryFolder folder_;
};

TEST_F(StartHome, ANewDiskGoesOnWithTheSameBits) {
  std::int64_t home_step = 0;
  {
    Subprocess first(trainer(0, kForEver));
    Subprocess beside(mirror(0));
    ASSERT_TRUE(first.wait_until([&] { return newest_in(home()) >= 20; })) << first.err() << beside.err();
    first.send(SIGKILL);
    beside.send(SIGKILL);
    first.wait();
    beside.wait();
    home_step = newest_in(home());
    fs::remove_all(disk(0));
  }
  const std::int64_t last = home_step + 25;
  const Ended ended = Subprocess(trainer(1, last)).wait();
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(last_step(ended.out, "started"), home_step);
  EXPECT_EQ(state_in(ended.last_line()), straight_state(last, {"every=10"}));
}

// One mirror serves several lives of the trainer, and the last save of a stop gets home.
TEST_F(StartHome, AMirrorBesideServesEveryLife) {
  Subprocess beside(mirror(0));
  Subprocess first(trainer(0, kForEver));
  ASSERT_TRUE(first.wait_until([&] { return newest_in(home()) >= 20; })) << first.err() << beside.err();
  first.send(SIGKILL);
  first.wait();
  Subprocess second(trainer(0, kForEver));
  const std::int64_t before = newest_in(home());
  ASSERT_TRUE(second.wait_until([&] { return newest_in(home()) > before + 20; })) << beside.err();
  beside.send(SIGTERM);
  std::this_thread::sleep_for(300ms);
  second.send(SIGTERM);
  EXPECT_EQ(second.wait().exit_code, 75);
  const Ended mirrored = beside.wait();
  EXPECT_EQ(mirrored.exit_code, 0) << mirrored.err;
  EXPECT_EQ(newest_in(home()), newest_in(disk(0))) << mirrored.err;
}

// Nobody supervises the trainer. Its mirror hears that HOME is another machine's, and fences it off here.
TEST_F(StartHome, ATrainerEndsWhenAnotherMachineTakesHomeOver) {
  constexpr std::int64_t kTooLate = 40'000;
  Subprocess first(trainer(0, kTooLate));
  Subprocess beside(mirror(0));
  ASSERT_TRUE(first.wait_until([&] { return newest_in(home()) >= 20; })) << first.err() << beside.err();
  const Ended fetched =
      Subprocess({HOLDFAST_BIN_DIR "/holdfast", "fetch", disk(1).native(), "--from", home().native()}).wait();
  ASSERT_EQ(fetched.exit_code, 0) << fetched.err;
  EXPECT_EQ(first.wait().exit_code, 76) << beside.err();
  beside.send(SIGKILL);
  beside.wait();
}

TEST_F(StartHome, AHomeThatIsAwayHoldsNoStartForEver) {
  ASSERT_EQ(drive(disk(0), 20, {"every=10"}).exit_code, 0);
  std::ofstream(home()) << "no directory";
  Subprocess machine({HOLDFAST_BIN_DIR "/holdfast", "supervise", "--directory", disk(0).native(), "--mirror",
                      home().native(), "--home-wait", "1s", "--", HOLDFAST_DRIVER, disk(0).native(),
                      std::to_string(kForEver), "every=10", "keep=3", "pace-us=1000"});
  ASSERT_TRUE(machine.wait_until([&] { return newest_in(disk(0)) > 40; })) << machine.err();
  EXPECT_NE(machine.err().find("goes on alone from step 20"), std::string::npos) << machine.err();
  fs::remove(home());
  EXPECT_TRUE(machine.wait_until([&] { return newest_in(home()) > 40; })) << machine.err();
  machine.send(SIGTERM);
  EXPECT_EQ(machine.wait().exit_code, 75);
  EXPECT_EQ(newest_in(home()), newest_in(disk(0)));
  // A new disk has nothing to go on from.
  fs::rename(home(), folder_.path() / "away");
  std::ofstream(home()) << "no directory";
  const Ended ended = Subprocess({HOLDFAST_BIN_DIR "/holdfast", "fetch", disk(1).native(), "--from",
                                  home().native(), "--home-wait", "1s"})
                          .wait();
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  EXPECT_FALSE(fs::exists(disk(1) / "attempts"));
}

}}  // namespace holdfast::test
