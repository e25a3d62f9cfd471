// The example, killed at the system calls that could change its run directory: before and after, whichever of
// its threads makes them, in a first life and in one that goes on from a killed one. Every time the next life
// must find what was acknowledged, and end in the state and with the losses of the run that nothing
// disturbed.
//
// Each story has a sample of its points, spread evenly; HOLDFAST_NIGHTLY=1 takes all of them.
#include <atomic>
#include <cstdio>

#include "resume/example_run.h"
#include "support/in_parallel.h"
#include "support/syscall_tracer.h"

namespace holdfast::test { namespace {

constexpr std::size_t kSample = 8;  // of each story

const std::map<std::string, std::string>& environment() {
  static const std::map<std::string, std::string> variables = {{"OMP_NUM_THREADS", "1"},
                                                               {"HOLDFAST_LOG", "debug"}};
  return variables;
}

std::vector<std::string> ten_steps() {
  return {"--data", "synthetic:64", "--width", "1",  "--batch-size",     "8",  "--threads", "1",
          "--lr",   "0.05",         "--steps", "10", "--schedule-steps", "10", "--no-eval", "--keep",
          "2",      "--every",      "3steps"};
}

// The last number between these words; -1 without one.
std::int64_t last_number(const std::string& log, const std::string& before, const std::string& after) {
  std::int64_t number = -1;
  for (const std::string& line : lines_of(log)) {
    const auto at = line.find(before);
    if (at != std::string::npos && line.find(after, at) != std::string::npos) {
      number = std::stoll(line.substr(at + before.size()));
    }
  }
  return number;
}

std::int64_t acknowledged_in(const Ended& ended) { return last_number(ended.err, ": step ", " is durable"); }

struct Point {
  std::size_t number;  // of the call, from 1
  Moment moment;
};

// One of every stretch, before and after in turn.
std::vector<Point> choose(std::size_t calls, std::mt19937& random) {
  std::vector<Point> points;
  const std::size_t count = nightly() ? 2 * calls : kSample;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t from = i * calls / count;
    const std::size_t to = std::max(from + 1, (i + 1) * calls / count);
    const auto call = nightly() ? i / 2 : std::uniform_int_distribution<std::size_t>(from, to - 1)(random);
    points.push_back({call + 1, i % 2 == 0 ? Moment::before : Moment::after});
  }
  return points;
}

struct Totals {
  std::atomic<int> calls{0};
  std::atomic<int> before{0};
  std::atomic<int> after{0};
  std::atomic<int> moved{0};  // of them: to an earlier call, the last that there was
  std::atomic<int> resumed{0};
  std::atomic<int> at_stake{0};  // of them: after a step was acknowledged
  std::atomic<int> lost{0};
  std::atomic<int> stuck{0};
  std::atomic<int> different{0};
};

class ExampleSyscalls : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = SyscallTracer::why_not()) GTEST_SKIP() << *why;
    const ExampleRun straight(ten_steps());
    const Ended ended = straight.finish({}, environment());
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    last_line_ = ended.last_line();
    losses_ = read_losses(straight.metrics());
    ASSERT_EQ(losses_.by_step.size(), 10U);
  }
  static void TearDownTestSuite() {
    if (totals.calls == 0) return;
    std::printf(
        "example syscalls: killed before %d and after %d of %d calls (%d moved to an earlier one), %d lives "
        "resumed, %d with something to "
        "lose, %d lost, %d stuck, %d different\n",
        totals.before.load(), totals.after.load(), totals.calls.load(), totals.moved.load(),
        totals.resumed.load(), totals.at_stake.load(), totals.lost.load(), totals.stuck.load(),
        totals.different.load());
  }

  struct Cut {
    bool reached = false;
    std::size_t calls = 0;  // seen
    Ended ended;
  };
  static Cut cut(const ExampleRun& run, Point point) {
    SyscallTracer life(run.command(), environment(), run.directory());
    const bool reached = life.run_to(point.number, point.moment);
    const std::size_t calls = life.calls().size();
    return {reached, calls, life.kill()};
  }
  // A life that found nothing (past 0), or one that goes on from a life killed at call `past`.
  void tell(std::size_t past);
  void resume(const ExampleRun& run, std::int64_t acknowledged);

  static inline Totals totals;
  std::string last_line_;
  Losses losses_;
};

void ExampleSyscalls::tell(std::size_t past) {
  const auto begin = [past](const ExampleRun& run) {
    return past == 0 ? Cut{.reached = true} : cut(run, {past, Moment::after});
  };
  const ExampleRun counted(ten_steps());
  ASSERT_TRUE(begin(counted).reached);
  SyscallTracer life(counted.command(), environment(), counted.directory());
  const Ended whole = life.wait();
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_TRUE(life.hidden().empty()) << life.hidden().front();
  const std::vector<ChangingCall> calls = life.calls();
  EXPECT_TRUE(std::any_of(calls.begin(), calls.end(), [](const ChangingCall& call) {
    return call.name.starts_with("unlink");
  })) << "retention deleted nothing";
  totals.calls += static_cast<int>(calls.size());

  std::mt19937 random(20260301);
  const std::vector<Point> points = choose(calls.size(), random);
  const int fired = totals.before + totals.after;
  const int moved = totals.moved;
  const int at_stake = totals.at_stake;
  in_parallel(points.size(), [&](std::size_t i) {
    if (HasFailure()) return;
    Point point = points[i];
    SCOPED_TRACE(std::string("killed ") + name_of(point.moment) + " call " + std::to_string(point.number) +
                 ", about " + calls[point.number - 1].text());
    // A save that comes while another is being written is left out. On a busy disk all of them may be: then
    // the last call that there is has to do.
    for (int tries = 0; tries < 20; ++tries) {
      const ExampleRun run(ten_steps());
      const Cut earlier = begin(run);
      if (!earlier.reached) continue;
      const Cut now = cut(run, point);
      if (!now.reached) {
        if (tries >= 3) point.number = std::min(point.number, now.calls);
        continue;
      }
      EXPECT_EQ(now.ended.signal, SIGKILL);
      if (point.number != points[i].number) ++totals.moved;
      ++(point.moment == Moment::before ? totals.before : totals.after);
      resume(run, std::max(acknowledged_in(earlier.ended), acknowledged_in(now.ended)));
      return;
    }
    ADD_FAILURE() << "that point was never reached";
  });
  EXPECT_EQ(totals.before + totals.after - fired, points.size()) << "points were planned";
  EXPECT_LE(totals.moved - moved, points.size() / 4) << "were moved";
  EXPECT_GT(totals.at_stake - at_stake, points.size() / 2) << "hardly any had acknowledged a step";
}

void ExampleSyscalls::resume(const ExampleRun& run, std::int64_t acknowledged) {
  const Ended ended = run.finish({}, environment());
  ++totals.resumed;
  if (acknowledged >= 0) ++totals.at_stake;
  if (ended.exit_code != 0) {
    ++totals.stuck;
    ADD_FAILURE() << "the next life ended with " << ended.exit_code << ", signal " << ended.signal << ": "
                  << ended.err;
    return;
  }
  const std::int64_t began = last_number(ended.err, "resuming from step ", " (");
  if (began < acknowledged) {
    ++totals.lost;
    ADD_FAILURE() << "step " << acknowledged << " was acknowledged, the next life began at " << began;
  }
  if (ended.last_line() != last_line_ || read_losses(run.metrics()).by_step != losses_.by_step) {
    ++totals.different;
    ADD_FAILURE() << ended.last_line() << "\ninstead of " << last_line_;
  }
}

TEST_F(ExampleSyscalls, OfAFirstLife) { tell(0); }

TEST_F(ExampleSyscalls, OfALifeThatGoesOn) {
  tell(50);  // inside the second commit
}

}}  // namespace holdfast::test
