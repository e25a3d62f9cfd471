// Programs with LibTorch that are told to stop at random moments from the first in which they listen, again
// and again: nothing is lost, nobody is stuck, every exit code is 75, and the end is that of the
// uninterrupted run. And a rehearsal of the user's own loop. (The same a hundred times without LibTorch:
// tests/crash/random_interruptions_test.cc.)
#include <cstdio>

#include "resume/example_run.h"
#include "support/catches_signals.h"

namespace holdfast::test { namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr unsigned kSeed = 20260606;

struct Counts {
  int planned = 0;
  int sent = 0;
  int lost = 0;
  int stuck = 0;
  int wrong_codes = 0;
  std::int64_t last_step = 0;  // of the newest life, committed
};

using Start = std::function<std::unique_ptr<Subprocess>()>;
using Trains = std::function<bool(const Subprocess&)>;

// `start` begins a life that does not end by itself, and prints `step=` in its last line. `trains`: it has
// come to a step; the last life is waited for until then, so that there is something to resume at the end
// however slow the machine is.
Counts interrupt_again_and_again(int lives, std::chrono::microseconds longest, const Start& start,
                                 const Trains& trains) {
  std::mt19937 random(kSeed);
  Counts counts;
  for (; counts.planned < lives && !testing::Test::HasFailure(); ++counts.planned) {
    const std::chrono::microseconds delay(
        std::uniform_int_distribution<std::int64_t>(0, longest.count())(random));
    const auto life = start();
    const bool listens = life->wait_until([&] { return catches_sigterm(life->pid()); });
    EXPECT_TRUE(listens) << life->err();
    if (counts.planned + 1 == lives) {
      EXPECT_TRUE(life->wait_until([&] { return trains(*life); })) << life->err();
    }
    std::this_thread::sleep_for(delay);
    if (listens && life->running()) ++counts.sent;
    life->send(SIGTERM);
    const Ended ended = life->wait();
    if (ended.signal == SIGKILL) ++counts.stuck;
    if (ended.exit_code != 75) ++counts.wrong_codes;
    EXPECT_EQ(ended.exit_code, 75) << "after " << delay.count() << " us, signal " << ended.signal << ": "
                                   << ended.err;
    const std::string step = value_of(ended.last_line(), "step=");
    if (step.empty()) continue;  // before there was anything to say
    // One that was stopped before it had resumed says 0, and has not touched what is there.
    if (std::stoll(step) == 0 || std::stoll(step) >= counts.last_step) {
      counts.last_step = std::max<std::int64_t>(counts.last_step, std::stoll(step));
    } else {
      ++counts.lost;
      ADD_FAILURE() << "step " << counts.last_step << " was committed, and now it is " << step << ": "
                    << ended.err;
    }
  }
  EXPECT_GT(counts.last_step, 0);
  return counts;
}

void expect_all_well(const char* program, const Counts& counts) {
  std::printf(
      "random interruptions: %s, %d SIGTERMs planned at random moments, %d sent, %d lost, %d stuck, %d wrong "
      "exit codes, "
      "seed %u\n",
      program, counts.planned, counts.sent, counts.lost, counts.stuck, counts.wrong_codes, kSeed);
  EXPECT_EQ(counts.sent, counts.planned);
  EXPECT_EQ(counts.lost, 0);
  EXPECT_EQ(counts.stuck, 0);
  EXPECT_EQ(counts.wrong_codes, 0);
}

const std::map<std::string, std::string> kOneThread = {{"OMP_NUM_THREADS", "1"}};

// Beside it, because that takes as long as its notice, another one is rehearsed. Its deadline is a SIGTERM:
// a SIGKILL would punish a machine that stands still for some seconds just before.
TEST(Lives, OwnLoopInterruptedAgainAndAgainLosesNothing) {
  const TemporaryFolder folder;
  Subprocess rehearsal({program("holdfast"), "rehearse", "--in", "100ms", "--notice", "10s", "--",
                        program("own_loop"), (folder.path() / "rehearsed").string(), "100000000"},
                       {{"OMP_NUM_THREADS", "1"}, {"HOLDFAST_LOG", "info"}});
  const auto own_loop = [](const std::filesystem::path& directory, const std::string& steps) {
    return std::make_unique<Subprocess>(
        std::vector<std::string>{program("own_loop"), directory.string(), steps}, kOneThread);
  };
  const auto run = folder.path() / "run";
  const Counts counts = interrupt_again_and_again(
      nightly() ? 1000 : 6, 500ms, [&] { return own_loop(run, "100000000"); },
      [](const Subprocess& life) { return life.err().find(" loss ") != std::string::npos; });
  expect_all_well("own_loop", counts);
  const std::string last = std::to_string(counts.last_step + 100);
  const Ended ended = own_loop(run, last)->wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("resuming from step " + std::to_string(counts.last_step) + " ("));
  EXPECT_EQ(ended.last_line(), own_loop(folder.path() / "straight", last)->wait().last_line());

  const Ended rehearsed = rehearsal.wait();
  EXPECT_EQ(rehearsed.exit_code, 0) << rehearsed.out << rehearsed.err;
  EXPECT_THAT(rehearsed.out, AllOf(ContainsRegex("resumed   at step [0-9,]+, 0 steps lost"),
                                   HasSubstr("verified, every byte\nnothing was lost\n")));
}

TEST(Lives, ExampleInterruptedAgainAndAgainLosesNothing) {
  const std::vector<std::string> plan = small({"--schedule-steps", "48"});
  const ExampleRun run(plan);
  std::int64_t logged = 0;  // before the life
  const Counts counts = interrupt_again_and_again(
      nightly() ? 200 : 3, 1500ms,
      [&] {
        logged = run.steps_logged();
        return run.start({"--steps", "1000000"});
      },
      [&](const Subprocess&) { return run.steps_logged() > logged; });
  expect_all_well("resnet50_cifar10", counts);
  const std::vector<std::string> last = {"--steps", std::to_string(counts.last_step + 3), "--no-eval"};
  const Ended ended = run.finish(last);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("resuming from step " + std::to_string(counts.last_step) + " ("));
  const ExampleRun straight(plan);
  EXPECT_EQ(value_of(ended.last_line(), "state="), value_of(straight.finish(last).last_line(), "state="));
}

}}  // namespace holdfast::test
