// One of two ranks is killed, or held, at the system calls by which it could change the run directory: before
// and after. The other one ends within the time-out; what lies there is whole; the next life is exact and
// comes to the end of the run that nothing disturbed. A rank that changes nothing is killed at a step.
//
// A sample of the points of each rank; HOLDFAST_NIGHTLY=1 takes all of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "dist/ranks.h"
#include "support/in_parallel.h"
#include "support/nightly.h"
#include "support/syscall_tracer.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::SizeIs;

constexpr int kSteps = 14;
constexpr std::size_t kSample = 4;  // of each rank
// The goal is 10 s; this is for slow machines.
constexpr auto kOver = 60s;

struct Point {
  std::size_t number = 0;  // of the call, from 1; 0: none
  Moment moment = Moment::before;
};

// One of every stretch, before and after in turn.
std::vector<Point> choose(std::size_t calls, std::mt19937& random) {
  std::vector<Point> points;
  const std::size_t count = nightly() ? 2 * calls : kSample;
  for (std::size_t i = 0; i < count && calls > 0; ++i) {
    const std::size_t from = i * calls / count;
    const std::size_t to = std::max(from + 1, (i + 1) * calls / count);
    const auto call = nightly() ? i / 2 : std::uniform_int_distribution<std::size_t>(from, to - 1)(random);
    points.push_back({call + 1, i % 2 == 0 ? Moment::before : Moment::after});
  }
  return points;
}

// Has rank 0 written down that the run is complete? Requires that it was killed: nothing is written
// meanwhile.
bool is_complete(const std::filesystem::path& run) {
  std::ifstream file(run / "RUN_STATE.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return text.find("complete") != std::string::npos;
}

std::atomic<int> lives{0};
std::atomic<int> at_stake{0};  // of them: something was committed

class Kill : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (SyscallTracer::why_not()) return;
    const TemporaryFolder folder;
    const Ended whole = launch(2, story_in(folder.path() / "run"));
    ASSERT_EQ(whole.exit_code, 0) << whole.err;
    end_ = said(whole, 2, "state");
    ASSERT_THAT(end_, SizeIs(2)) << whole.out;
  }
  void SetUp() override {
    if (const auto why = SyscallTracer::why_not()) GTEST_SKIP() << *why;
  }
  static void TearDownTestSuite() {
    std::printf("kill: %d lives of two ranks cut, %d of them with something to lose\n", lives.load(),
                at_stake.load());
  }
  static Words story_in(const std::filesystem::path& run, const Words& more = {}) {
    Words given = {"every=4", "keep=2", "pause=20"};
    given.insert(given.end(), more.begin(), more.end());
    return story(run, kSteps, given);
  }
  // Both ranks of a first life; `rank` is traced.
  struct Life {
    Life(int rank, const std::filesystem::path& run)
        : traced(std::make_unique<SyscallTracer>(story_in(run), meeting.of_rank(rank), run,
                                                 SyscallTracer::best_way(), 300s)),
          other(std::make_unique<Subprocess>(story_in(run), meeting.of_rank(1 - rank))) {}
    Meeting meeting;
    std::unique_ptr<SyscallTracer> traced;
    std::unique_ptr<Subprocess> other;
  };
  static std::vector<ChangingCall> calls_of(int rank) {
    const TemporaryFolder folder;
    Life life(rank, folder.path() / "run");
    const Ended ended = life.traced->wait();
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_EQ(life.other->wait(kOver).exit_code, 0);
    // The event loop of c10d's store has one, for its sockets.
    EXPECT_THAT(life.traced->hidden(), Each(testing::StartsWith("io_uring_setup ")));
    return life.traced->calls();
  }
  void ends(Subprocess& other, int lost) const {
    const auto began = std::chrono::steady_clock::now();
    const Ended ended = other.wait(kOver);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    EXPECT_EQ(ended.exit_code, 75) << "after " << took.count() << " s, signal " << ended.signal << ": "
                                   << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("rank " + std::to_string(lost)));
  }
  // Returns the step that the next life went on from.
  std::int64_t goes_on(const std::filesystem::path& run) const {
    ++lives;
    int count = 0;
    EXPECT_EQ(not_whole(run, &count), "") << "half a world";
    if (count > 0) ++at_stake;
    const Ended ended = launch(2, story_in(run));
    EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
    const Words resumed = said(ended, 2, "resumed");
    EXPECT_THAT(resumed, AllOf(SizeIs(2), Each(HasSubstr(" exact"))));
    EXPECT_EQ(said(ended, 2, "state"), end_) << ended.err;
    if (resumed.size() != 2) return -1;
    EXPECT_EQ(resumed[0], resumed[1]);
    const std::int64_t step = std::stoll(resumed[0]);
    EXPECT_EQ(count > 0, step > 0) << "what was there is not what it began with";
    return step;
  }

  void at_sampled_points(int rank);
  void held(const std::function<bool(const ChangingCall&)>& wanted, Moment moment) const;

  static inline Words end_;
};

void Kill::at_sampled_points(int rank) {
  const auto calls = calls_of(rank);
  std::mt19937 random(20261122U + static_cast<unsigned>(rank));
  std::vector<Point> points = choose(calls.size(), random);
  // c10d's store is not there yet: the other rank waits ten minutes for it.
  std::erase_if(points, [&](const Point& point) {
    return point.number > 0 && calls[point.number - 1].text().starts_with("io_uring_setup");
  });
  // One that changes nothing there dies all the same, at a step.
  if (points.empty()) points.resize(nightly() ? kSteps : kSample / 2);
  in_parallel(points.size(), [&](std::size_t i) {
    if (HasFailure()) return;
    Point point = points[i];
    const TemporaryFolder folder;
    const auto run = folder.path() / "run";
    if (point.number == 0) {
      const std::string step = std::to_string(1 + i * kSteps / points.size());
      const Meeting meeting;
      const Words words = story_in(run, {"at=kill:" + std::to_string(rank) + ":" + step});
      Subprocess dies(words, meeting.of_rank(rank));
      Subprocess other(words, meeting.of_rank(1 - rank));
      EXPECT_EQ(dies.wait(kOver).signal, SIGKILL);
      ends(other, rank);
      goes_on(run);
      return;
    }
    SCOPED_TRACE("rank " + std::to_string(rank) + " killed " + name_of(point.moment) + " call " +
                 std::to_string(point.number) + ", about " + calls[point.number - 1].text());
    // Now and then a life makes fewer calls: a save falls together with the next.
    for (int tries = 0; tries < 10; ++tries) {
      const TemporaryFolder own;
      Life life(rank, own.path() / "run");
      if (!life.traced->run_to(point.number, point.moment)) {
        point.number = std::min(point.number, life.traced->calls().size());
        life.other->wait(kOver);
        continue;
      }
      EXPECT_EQ(life.traced->kill().signal, SIGKILL);
      // Its last calls may come when the end is told: the other rank's work is complete then.
      if (is_complete(own.path() / "run")) {
        EXPECT_THAT(life.other->wait(kOver).exit_code, testing::AnyOf(0, 75));
      } else {
        ends(*life.other, rank);
      }
      goes_on(own.path() / "run");
      return;
    }
    ADD_FAILURE() << "that point was never reached";
  });
}

TEST_F(Kill, RankZeroAtItsCalls) { at_sampled_points(0); }

TEST_F(Kill, AFollowerAtItsCalls) { at_sampled_points(1); }

bool is_commit(const ChangingCall& call) {
  return call.name.starts_with("rename") && call.to.find("/step-") != std::string::npos &&
         call.to.ends_with(".h5");
}

// The second commit: the name is there, nobody has heard of it.
TEST_F(Kill, RankZeroBetweenTheRenameAndTheAcknowledgement) {
  in_parallel(2, [&](std::size_t i) {
    // On a busy machine the second commit may be that of the end.
    for (int tries = 0; tries < 5; ++tries) {
      const TemporaryFolder folder;
      const auto run = folder.path() / "run";
      Life life(0, run);
      int commits = 0;
      ASSERT_TRUE(
          life.traced->run_to([&](const ChangingCall& call) { return is_commit(call) && ++commits == 2; },
                              i == 0 ? Moment::before : Moment::after));
      const std::string name = life.traced->calls().back().to;
      life.traced->kill();
      ends(*life.other, 0);
      EXPECT_EQ(std::filesystem::exists(name), i == 1);
      const std::int64_t step = goes_on(run);
      const std::int64_t named = std::stoll(name.substr(name.rfind("/step-") + 6));
      EXPECT_EQ(step == named, i == 1) << name << ", and the next life began at " << step;
      if (named < kSteps) return;
    }
    ADD_FAILURE() << "the training was over each time";
  });
}

// Rank 0 hangs in a save; the others leave, the next life takes over and ends. Whatever the old one does when
// it wakes up changes nothing.
void Kill::held(const std::function<bool(const ChangingCall&)>& wanted, Moment moment) const {
  const TemporaryFolder folder;
  const auto run = folder.path() / "run";
  Life life(0, run);
  ASSERT_TRUE(life.traced->run_to(wanted, moment));
  life.traced->hold();
  ends(*life.other, 0);
  goes_on(run);
  const auto before = contents(run);
  const Ended woken = life.traced->wait();
  EXPECT_NE(woken.exit_code, 0) << woken.out << woken.err;
  const auto after = contents(run);
  for (const auto& [name, bytes] : before) {
    ASSERT_TRUE(after.contains(name)) << name << " is gone";
    // Its own progress decides nothing; after 10 s the thread that writes it may wake up first.
    if (name.ends_with("/attempts/1.progress.json")) continue;
    EXPECT_TRUE(after.at(name) == bytes) << name << " is another";
  }
  EXPECT_EQ(not_whole(run), "");
  for (const auto& [name, bytes] : after) {
    EXPECT_TRUE(before.contains(name) || !name.ends_with(".h5")) << name << " came late";
  }
}

TEST_F(Kill, AHeldRankZeroWakesUpLateAndChangesNothing) {
  int writes[2] = {0, 0};
  int commits[2] = {0, 0};
  // By day without the last: crash_zombie_processes_test holds a process after its rename.
  in_parallel(nightly() ? 3 : 2, [&](std::size_t i) {
    SCOPED_TRACE("hold " + std::to_string(i));
    switch (i) {
      case 0:  // in the middle of a file
        held([&](const ChangingCall& call) { return call.name.starts_with("pwrite") && ++writes[0] == 8; },
             Moment::before);
        return;
      case 1:
        held([&](const ChangingCall& call) { return is_commit(call) && ++commits[0] == 2; }, Moment::before);
        return;
      default:
        held([&](const ChangingCall& call) { return is_commit(call) && ++commits[1] == 2; }, Moment::after);
    }
  });
}

// A follower is stopped, in whatever it does then.
TEST_F(Kill, AStoppedFollowerWakesUpLateAndChangesNothing) {
  in_parallel(2, [&](std::size_t i) {
    const TemporaryFolder folder;
    const auto run = folder.path() / "run";
    const Meeting meeting;
    const Words words = story_in(run, {"at=stop:1:" + std::to_string(5 + 4 * i)});
    Subprocess stopped(words, meeting.of_rank(1));
    Subprocess other(words, meeting.of_rank(0));
    ends(other, 1);
    goes_on(run);
    const auto before = contents(run);
    stopped.send(SIGCONT);
    const Ended woken = stopped.wait(kOver);
    EXPECT_EQ(woken.exit_code, 75) << "signal " << woken.signal << ": " << woken.err;
    EXPECT_TRUE(contents(run) == before) << "it changed something";
  });
}

}}  // namespace holdfast::test
