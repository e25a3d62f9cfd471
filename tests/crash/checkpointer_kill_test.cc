// The real Checkpointer in a process that dies: at the operations that could change the disk, at
// random moments, and by SIGTERM. Each time the run is started again until it completes, and must end in the
// state of the uninterrupted run, at or after the last step that was acknowledged.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <random>
#include <string>
#include <thread>

#include "crash/driver_run.h"
#include "support/nightly.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;

// Under a sanitizer, where a process takes a while to start, a seventh of the operations; by day every second one.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kStride = 7;
#else
const int kStride = nightly() ? 1 : 2;
#endif

struct Killed {
  int killed = 0;
  int resumed = 0;
  int lost = 0;
};

void kill_before_operations(int first, const std::vector<std::string>& habits, Killed& count) {
  constexpr std::int64_t kSteps = 5;
  const std::string straight = straight_state(kSteps);
  const int killed_before = count.killed;
  for (int at = first;; at += kStride) {
    SCOPED_TRACE("killed before operation " + std::to_string(at) + ", " + habits.back());
    const TemporaryFolder folder;
    const auto directory = folder.path() / "run";
    const auto cut_short = [&](int operation) {
      std::vector<std::string> more = habits;
      more.push_back("kill-before=" + std::to_string(operation));
      return drive(directory, kSteps, more);
    };
    const Ended first = cut_short(at);
    if (first.signal == 0) {
      EXPECT_EQ(first.exit_code, 0) << first.err;
      break;
    }
    ASSERT_EQ(first.signal, SIGKILL);
    ++count.killed;
    // Every third time the next life is cut short as well, inside its recovery or a little later.
    std::int64_t acknowledged = last_step(first.out, "acknowledged");
    if (at % 3 == 0) {
      const Ended second = cut_short(1 + at % 11);
      acknowledged = std::max(acknowledged, last_step(second.out, "acknowledged"));
    }
    const Ended last = drive(directory, kSteps, {});
    EXPECT_EQ(last.exit_code, 0) << last.err;
    EXPECT_GE(last_step(last.out, "started"), acknowledged);
    EXPECT_EQ(state_in(last.last_line()), straight);
    if (last.exit_code == 0 && state_in(last.last_line()) == straight) ++count.resumed;
    if (last_step(last.out, "started") < acknowledged) ++count.lost;
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_GT(count.killed - killed_before, 30 / kStride);
}

TEST(CheckpointerKill, BeforeAnyOperationOnTheDisk) {
  Killed count;
  kill_before_operations(1, {"every=2", "wait"}, count);
  kill_before_operations(nightly() ? 1 : 2, {"every=2", "wait", "announced"}, count);
  std::printf("kill: before %d operations, %d resumed, %d lost\n", count.killed, count.resumed, count.lost);
  EXPECT_EQ(count.resumed, count.killed);
}

// Half of the lives announce their updates: many of those end while the state is being copied beside them.
TEST(CheckpointerKill, AtRandomMoments) {
  constexpr std::int64_t kSteps = 120;
  const std::vector<std::string> pace = {"every=3", "pace-us=1000", "elements=200000"};
  const std::string straight = straight_state(kSteps, {"elements=200000"});
  const TemporaryFolder folder;
  const auto directory = folder.path() / "run";
  std::vector<std::string> command = {HOLDFAST_DRIVER, directory.native(), std::to_string(kSteps)};
  command.insert(command.end(), pace.begin(), pace.end());

  std::mt19937 random(20260101);
  int killed = 0;
  for (int life = 0; life < 200; ++life) {
    std::vector<std::string> habits = command;
    if (life % 2 == 0) habits.emplace_back("announced");
    Subprocess process(habits, {{"HOLDFAST_LOG", "warning"}});
    // Lives grow, so that the run comes to its end.
    const auto limit =
        std::chrono::milliseconds(10 + std::uniform_int_distribution<int>(0, 60 + 10 * life)(random));
    process.wait_until([] { return false; }, limit);
    const bool politely = life % 4 == 3;
    process.send(politely ? SIGTERM : SIGKILL);
    const Ended ended = process.wait();
    if (ended.exit_code == 0) {
      EXPECT_EQ(state_in(ended.last_line()), straight);
      EXPECT_GT(killed, 2);
      return;
    }
    ++killed;
    if (ended.exit_code >= 0) {
      ASSERT_EQ(ended.exit_code, 75) << ended.err;
    } else {
      ASSERT_TRUE(ended.signal == SIGKILL || (politely && ended.signal == SIGTERM))
          << ended.signal << ended.err;
    }
  }
  FAIL() << "never came to its end";
}

TEST(CheckpointerKill, TheOlderOfTwoStandsBack) {
  const std::string straight = straight_state(400);
  const TemporaryFolder folder;
  const auto directory = folder.path() / "run";
  const std::vector<std::string> command = {HOLDFAST_DRIVER, directory.native(), "400", "every=5",
                                            "wait",          "pace-us=2000"};
  Subprocess older(command);
  ASSERT_TRUE(older.wait_until([&] { return last_step(older.out(), "acknowledged") >= 5; }));
  const Ended newer = drive(directory, 400, {"every=50"});
  const Ended stopped = older.wait();
  EXPECT_EQ(newer.exit_code, 0) << newer.err;
  EXPECT_EQ(state_in(newer.last_line()), straight);
  EXPECT_EQ(stopped.exit_code, 76) << stopped.err;
}

}}  // namespace holdfast::test
