// Two ranks that are interrupted at random steps, again and again: the end is that of the run that nobody
// interrupted. Eight times; HOLDFAST_NIGHTLY=1 a thousand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>

#include "dist/ranks.h"
#include "support/nightly.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::SizeIs;

constexpr unsigned kSeed = 20261122;

int count_of_lives() {
  const char* const asked = std::getenv("HOLDFAST_INTERRUPTIONS");
  if (asked != nullptr) return std::atoi(asked);
  return nightly() ? 1000 : 8;
}

TEST(Interruptions, OfTwoRanksAtRandomSteps) {
  const int planned = count_of_lives();
  const int steps = planned * 6 + 10;
  const TemporaryFolder folder;
  const auto run = folder.path() / "run";
  std::mt19937 random(kSeed);
  std::int64_t step = 0;
  int lost = 0;
  int killed = 0;
  for (int life = 0; life < planned; ++life) {
    // Every tenth time a rank dies; what was committed last stands then.
    const bool kill = life % 10 == 7;
    const auto rank = std::to_string(random() % 2);
    const auto after = std::to_string(1 + random() % 4);
    SCOPED_TRACE("life " + std::to_string(life) + " from step " + std::to_string(step) + ", rank " + rank +
                 (kill ? " killed" : " told to stop") + " after " + after);
    const Ended ended = launch(
        2,
        story(run, steps,
              {"every=3", "fixed=1", "at=" + std::string(kill ? "kill:" : "term:") + rank + ":+" + after}));
    ASSERT_EQ(ended.exit_code, kill ? 128 + 9 : 75) << ended.out << ended.err;
    const Words resumed = said(ended, 2, "resumed");
    ASSERT_THAT(resumed, AllOf(SizeIs(2), Each(HasSubstr(" exact")))) << ended.err;
    if (std::stoll(resumed[0]) < step || resumed[0] != resumed[1]) ++lost;
    step = std::stoll(resumed[0]);
    killed += static_cast<int>(kill);
    if (kill) continue;
    const Words state = said(ended, 2, "state");
    ASSERT_THAT(state, SizeIs(2)) << ended.err;
    // A vote comes before each save, every third step, and the stop a step after it.
    EXPECT_GT(std::stoll(state[0]), step + std::stoll(after));
    EXPECT_LE(std::stoll(state[0]), step + std::stoll(after) + 4);
    EXPECT_EQ(std::stoll(state[0]), std::stoll(state[1]));
    step = std::stoll(state[0]);
  }
  const Ended last = launch(2, story(run, steps + 10, {"every=3"}));
  EXPECT_EQ(last.exit_code, 0) << last.err;
  EXPECT_EQ(said(last, 2, "resumed")[0], std::to_string(step) + " exact");
  const Ended whole = launch(2, story(folder.path() / "whole", steps + 10, {"every=1000"}));
  ASSERT_THAT(said(whole, 2, "state"), SizeIs(2)) << whole.err;
  EXPECT_EQ(said(last, 2, "state"), said(whole, 2, "state"));
  EXPECT_EQ(lost, 0);
  std::printf(
      "interruptions: 2 ranks, %d lives cut short at random steps, %d of them by SIGKILL, %d lost, seed %u\n",
      planned, killed, lost, kSeed);
}

// Rank 0 waits for the other at its store, rank 1 for that store: up to ten minutes.
TEST(Interruptions, WhileRanksMeetEndTheWaiting) {
  for (const int rank : {0, 1}) {
    const TemporaryFolder folder;
    Environment place = Meeting().of_rank(rank);  // its socket is closed: nobody else comes
    place.erase("HOLDFAST_LAUNCH_SOCKET");
    Subprocess waiting(story(folder.path() / "run", 5), place);
    std::this_thread::sleep_for(3s);
    ASSERT_TRUE(waiting.running()) << waiting.err();
    waiting.send(SIGTERM);
    const Ended ended = waiting.wait(60s);
    EXPECT_EQ(ended.exit_code, 75) << "rank " << rank << ", signal " << ended.signal << ": " << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("told to stop"));
  }
}

// Rank 0 waits for its volume, the other for what rank 0 found there.
TEST(Interruptions, WhileRanksResumeEndTheWaiting) {
  for (const int rank : {0, 1}) {
    const TemporaryFolder folder;
    const Meeting meeting;
    const auto command = story(folder.path() / "mount" / "run", 5, {"mount=1"});
    Subprocess zero(command, meeting.of_rank(0));
    Subprocess one(command, meeting.of_rank(1));
    ASSERT_TRUE(zero.wait_until([&] { return zero.err().find("waiting for") != std::string::npos; }, 5min))
        << zero.err();
    std::this_thread::sleep_for(1s);
    (rank == 0 ? zero : one).send(SIGTERM);
    const Ended told = (rank == 0 ? zero : one).wait(60s);
    EXPECT_EQ(told.exit_code, 75) << "rank " << rank << ", signal " << told.signal << ": " << told.err;
    if (rank == 1) zero.send(SIGTERM);  // as a launcher does
    EXPECT_EQ((rank == 0 ? one : zero).wait(2min).exit_code, 75) << "the other is left alone";
  }
}

}}  // namespace holdfast::test
