// SIGTERM and SIGINT at the moments that differ: start-up, a step, evaluation, a save, the end. Always exit
// 75 (or a complete run), and always a state that the run without the interruption went through.
#include <unistd.h>

#include <limits>
#include <sstream>

#include "resume/example_run.h"
#include "support/catches_signals.h"

namespace holdfast::test { namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::vector<std::string>& plan() {
  static const std::vector<std::string> words = small({"--schedule-steps", "48"});
  return words;
}

// `state=` after `step` steps without any interruption.
std::string state_at(std::int64_t step) {
  static std::map<std::int64_t, std::string> known;
  std::string& state = known[step];
  if (state.empty()) {
    const ExampleRun run(plan());
    const Ended ended = run.finish({"--steps", std::to_string(step), "--no-eval"});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    state = value_of(ended.last_line(), "state=");
  }
  return state;
}

void expect_interrupted(const Ended& ended, const std::string& reason) {
  ASSERT_EQ(ended.exit_code, 75) << ended.err;
  ASSERT_THAT(ended.last_line(), StartsWith("interrupted step="));
  EXPECT_THAT(ended.last_line(), HasSubstr(" reason=" + reason));
  const std::int64_t step = std::stoll(value_of(ended.last_line(), "step="));
  if (step > 0) {
    EXPECT_EQ(value_of(ended.last_line(), "state="), state_at(step)) << "at step " << step;
  }
}

// Processor time: what others do on the machine does not count. -1: it cannot be read.
std::int64_t milliseconds_used(pid_t pid) {
  const std::string text = read_text("/proc/" + std::to_string(pid) + "/stat");
  std::istringstream fields(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string skipped;
  for (int i = 3; i < 14; ++i) fields >> skipped;
  std::int64_t user = 0;
  std::int64_t system = 0;
  if (!(fields >> user >> system)) return -1;
  return (user + system) * 1000 / sysconf(_SC_CLK_TCK);
}

TEST(Moments, HandlersAreThereBeforeLibTorchHasStarted) {
  std::int64_t best = std::numeric_limits<std::int64_t>::max();
  // The best of twenty: the test itself may look too late. LibTorch's start alone takes some 200 ms.
  for (int i = 0; i < 20 && best >= 50; ++i) {
    const ExampleRun run(plan());
    auto process = run.start({"--steps", "1"});
    ASSERT_TRUE(process->wait_until([&] { return catches_sigterm(process->pid()); }));
    const std::int64_t used = milliseconds_used(process->pid());
    ASSERT_GE(used, 0);
    best = std::min(best, used);
  }
  EXPECT_LT(best, 50);
}

TEST(Moments, SignalDuringStartUpEndsTheRun) {
  const ExampleRun run(plan());
  std::vector<std::chrono::milliseconds> delays = {0ms, 100ms, 300ms};
  if (nightly()) delays.insert(delays.end(), {50ms, 150ms, 200ms, 250ms});
  for (const auto delay : delays) {
    auto process = run.start({"--steps", "1000"});
    ASSERT_TRUE(process->wait_until([&] { return catches_sigterm(process->pid()); }));
    std::this_thread::sleep_for(delay);
    process->send(SIGTERM);
    const Ended ended = process->wait();
    expect_interrupted(ended, "SIGTERM");
  }
}

TEST(Moments, StartUpOfAResume) {
  const ExampleRun run(plan());
  ASSERT_EQ(run.finish({"--steps", "3"}).exit_code, 0);
  auto process = run.start({"--steps", "1000"});
  ASSERT_TRUE(process->wait_until([&] { return catches_sigterm(process->pid()); }));
  process->send(SIGTERM);
  const Ended ended = process->wait();
  expect_interrupted(ended, "SIGTERM");
  if (value_of(ended.last_line(), "step=") == "3") {
    EXPECT_EQ(value_of(ended.last_line(), "checkpoint="), "none") << "there was nothing new to commit";
  }
}

TEST(Moments, WaitingForAVolume) {
  const ExampleRun run(plan());
  const std::string mount = run.directory().parent_path().string();  // a folder, and nothing mounted on it
  auto process = run.start({"--steps", "1000", "--mount", mount});
  ASSERT_TRUE(process->wait_until([&] { return process->err().find("waiting for") != std::string::npos; }));
  process->send(SIGTERM);
  const Ended ended = process->wait();
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_EQ(ended.last_line(),
            "interrupted step=0 state=none checkpoint=none reason=stopped_before_the_start");
  EXPECT_FALSE(std::filesystem::exists(run.directory()));
}

TEST(Moments, SignalInAStepEndsTheRunAfterThatStep) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const ExampleRun run(plan());
    auto process = run.start({"--steps", "100000"});
    ASSERT_TRUE(process->wait_until([&] { return run.steps_logged() >= 5; }));
    process->send(signal);
    const Ended ended = process->wait();
    expect_interrupted(ended, signal == SIGTERM ? "SIGTERM" : "SIGINT");
    const std::string checkpoint = value_of(ended.last_line(), "checkpoint=");
    EXPECT_TRUE(std::filesystem::exists(run.directory() / checkpoint)) << ended.last_line();
    EXPECT_EQ(std::stoll(value_of(ended.last_line(), "step=")), run.steps_logged())
        << "the step under way is finished, and no other is begun";
  }
}

TEST(Moments, SignalInAnEvaluationSavesAndTheNextStartEvaluates) {
  // 24,000 synthetic pictures to test with take longer than the signal needs.
  std::vector<std::string> words = plan();
  words[1] = "synthetic:20000";
  words.insert(words.end(), {"--steps", "4"});
  const ExampleRun straight(words);
  const Ended expected = straight.finish();
  ASSERT_EQ(expected.exit_code, 0) << expected.err;

  const ExampleRun run(words);
  auto process = run.start({}, {{"HOLDFAST_LOG", "debug"}});
  ASSERT_TRUE(process->wait_until([&] { return process->err().find("evaluating") != std::string::npos; }));
  process->send(SIGTERM);
  const Ended ended = process->wait();
  ASSERT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_EQ(value_of(ended.last_line(), "step="), "4");
  EXPECT_EQ(value_of(ended.last_line(), "state="), value_of(expected.last_line(), "state="));
  EXPECT_NE(value_of(ended.last_line(), "checkpoint="), "none");

  const Ended resumed = run.finish();
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(resumed.last_line(), expected.last_line()) << "the evaluation that was due is made up for";
}

TEST(Moments, SignalInASaveEndsTheRunWithACheckpoint) {
  const ExampleRun run(plan());
  const auto saving = [&] {
    std::error_code missing;
    for (const auto& entry : std::filesystem::directory_iterator(run.directory(), missing)) {
      const std::string name = entry.path().filename();
      if (entry.is_regular_file(missing) && !name.ends_with(".h5") && !name.ends_with(".json")) return true;
    }
    return false;
  };
  for (int life = 0; life < (nightly() ? 3 : 2); ++life) {
    auto process = run.start({"--steps", "100000", "--every", "1steps"});
    const std::int64_t before = run.steps_logged();
    ASSERT_TRUE(process->wait_until([&] { return run.steps_logged() > before && saving(); }));
    process->send(SIGTERM);
    expect_interrupted(process->wait(), "SIGTERM");
  }
}

// Only a second Ctrl-C at a terminal ends at once (interruption's own tests): launchers send SIGINT to a
// whole process group, some of them twice.
TEST(Moments, ASecondInterruptWithoutATerminalLosesNothing) {
  std::vector<std::string> words = plan();
  words[3] = "32";  // a step takes long
  words[5] = "128";
  const ExampleRun run(words);
  auto process = run.start({"--steps", "1000"});
  ASSERT_TRUE(process->wait_until([&] { return run.steps_logged() >= 1; }));
  process->send(SIGINT);
  ASSERT_TRUE(process->wait_until([&] { return process->err().find("SIGINT") != std::string::npos; }));
  process->send(SIGINT);
  const Ended ended = process->wait();
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_NE(value_of(ended.last_line(), "checkpoint="), "none");
}

TEST(Moments, RunThatIsCompleteSaysSoAgain) {
  const ExampleRun run(plan());
  const Ended first = run.finish({"--steps", "5"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const std::int64_t lines = run.steps_logged();
  const auto files = run.checkpoints();
  const Ended again = run.finish({"--steps", "5"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(again.last_line(), first.last_line());
  EXPECT_EQ(run.steps_logged(), lines);
  EXPECT_EQ(run.checkpoints(), files);
}

TEST(Moments, TheResumeReceiptIsPrinted) {
  const ExampleRun run(plan());
  auto process = run.start({"--steps", "100000", "--every", "4steps"});
  // Recorded losses reach the disk after the save that they belong to: those of the second one are there
  // when there is a third.
  ASSERT_TRUE(process->wait_until([&] { return run.checkpoints().size() >= 3; }));
  process->send(SIGKILL);
  process->wait();
  while (run.checkpoints().size() > 1) std::filesystem::remove(run.checkpoints().back());
  process = run.start({"--steps", "100000"});
  process->wait_until([&] { return process->err().find("resume verified") != std::string::npos; });
  process->send(SIGTERM);
  const Ended ended = process->wait();
  ASSERT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_THAT(ended.err,
              ::testing::ContainsRegex("resume verified: steps [0-9,]+\\.\\.[0-9,]+ bit-identical"));
}

}}  // namespace holdfast::test
