// What a mirror says reaches the run, and a volume that hangs delays nothing.
#include "holdfast/checkpoint/internal/home_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "support/gate.h"
#include "support/run_disk.h"
#include "support/soon.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using internal::HomeWatch;
using testing::ElementsAre;

class HomeWatchTest : public testing::Test {
 protected:
  HomeWatchTest() { volume.disk.open_directory(kRun, true); }
  void say(int copies) {
    const auto run = volume.disk.open_directory(kRun, false);
    update_home_record(*run, [&](const auto&) { return HomeRecord{.home = "/efs/run", .copies = copies}; });
  }
  void start(Duration interval = 1ms, Duration without_mirror = 1ms) {
    watch.start(
        volume.faults, kRun,
        [this](const HomeRecord& record) {
          const std::lock_guard lock(mutex);
          copies.push_back(record.copies);
        },
        interval, without_mirror);
  }
  std::vector<int> told() {
    const std::lock_guard lock(mutex);
    return copies;
  }
  int looks() const { return volume.faults.count(Op::open_directory); }

  RunDisk volume;
  std::mutex mutex;
  std::vector<int> copies;
  HomeWatch watch;
};

TEST_F(HomeWatchTest, TellsWhatStandsThereAtOnceAndThenOnlyWhatChanges) {
  say(1);
  start();
  EXPECT_THAT(told(), ElementsAre(1)) << "before start() returns";
  const int before = looks();
  ASSERT_TRUE(soon([&] { return looks() > before + 3; }));
  EXPECT_THAT(told(), ElementsAre(1)) << "it is no news";
  say(2);
  ASSERT_TRUE(soon([&] { return told().size() > 1; }));
  EXPECT_THAT(told(), ElementsAre(1, 2));
}

TEST_F(HomeWatchTest, LooksSeldomWithoutAMirror) {
  start(1ms, 1h);
  ASSERT_TRUE(soon([&] { return looks() >= 2; }));
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(looks(), 2);
}

TEST_F(HomeWatchTest, LooksOftenFromTheFirstRecordOnAlsoWhileItIsTorn) {
  say(1);
  start(1ms, 1h);
  ASSERT_THAT(told(), ElementsAre(1));
  volume.disk.put(volume.path("HOME_STATE.json"), "{\"home\":\"/efs");
  const int before = looks();
  ASSERT_TRUE(soon([&] { return looks() > before + 3; })) << "there was a mirror";
  EXPECT_THAT(told(), ElementsAre(1)) << "torn is no news";
  say(3);
  ASSERT_TRUE(soon([&] { return told().size() > 1; }));
  EXPECT_THAT(told(), ElementsAre(1, 3));
}

TEST_F(HomeWatchTest, ADiskThatFailsForAWhileCostsNothingElse) {
  volume.faults.fail(Op::open_read, 1, EIO, {.for_ever = true});
  say(1);
  start();
  EXPECT_THAT(told(), ElementsAre());
  volume.faults.clear_faults();
  ASSERT_TRUE(soon([&] { return !told().empty(); }));
}

TEST_F(HomeWatchTest, TellsNothingAfterTheStop) {
  start();
  watch.stop();
  say(1);
  const int before = looks();
  std::this_thread::sleep_for(10ms);
  EXPECT_EQ(looks(), before);
  EXPECT_THAT(told(), ElementsAre());
}

// The last round does not look: a look could only delay the end of the run.
TEST_F(HomeWatchTest, TheStopDoesNotLookAtTheDisk) {
  start(1h, 1h);
  const int before = looks();
  watch.stop();
  EXPECT_EQ(looks(), before);
}

}}  // namespace holdfast::test
