// N steps straight, and the same N steps with several kill -9 and SIGTERM at random moments: the same last
// line (step, epoch, loss, accuracy, state=) and the same bits of every step's loss.
//
// HOLDFAST_NIGHTLY=1 interrupts more often, on longer runs. HOLDFAST_SEED=N repeats the moments of a run, as
// far as the machine's timing allows.
#include "resume/example_run.h"

namespace holdfast::test { namespace {

struct Case {
  std::string name;
  std::int64_t steps;
  std::vector<std::string> arguments;
  // What every second attempt is started with: free to change.
  std::vector<std::string> changed;
  std::string width = "2";
  // Of the interrupted attempts.
  std::map<std::string, std::string> environment = {};
  bool nightly = false;  // what others prove, apart or together
};

std::ostream& operator<<(std::ostream& out, const Case& value) { return out << value.name; }

unsigned seed() {
  const char* given = std::getenv("HOLDFAST_SEED");
  return given != nullptr ? static_cast<unsigned>(std::stoul(given)) : std::random_device()();
}

class BitExact : public ::testing::TestWithParam<Case> {
 protected:
  static std::vector<std::string> with_steps(const Case& value) {
    auto words = small(value.arguments, value.width);
    words.insert(words.end(), {"--steps", std::to_string(value.steps * (nightly() ? 10 : 1))});
    return words;
  }
};

TEST_P(BitExact, InterruptedRunEndsAsTheStraightOne) {
  const Case& value = GetParam();
  if (value.nightly && !nightly()) GTEST_SKIP() << "HOLDFAST_NIGHTLY=1 trains it too";
  const unsigned chosen = seed();
  SCOPED_TRACE("HOLDFAST_SEED=" + std::to_string(chosen));
  std::mt19937 random(chosen);
  const auto pick = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };

  const ExampleRun straight(with_steps(value));
  const Ended expected = straight.finish({"--every", "1000steps"});
  ASSERT_EQ(expected.exit_code, 0) << expected.err;
  const Losses losses = read_losses(straight.metrics());
  const std::int64_t steps = value.steps * (nightly() ? 10 : 1);
  ASSERT_EQ(static_cast<std::int64_t>(losses.by_step.size()), steps);

  const ExampleRun run(with_steps(value));
  const int interruptions = nightly() ? 30 : 3;
  int kills = 0;
  Ended ended;
  for (int i = 0; i < interruptions; ++i) {
    std::vector<std::string> extra = {"--every", "3steps"};
    if (i % 2 == 1) extra.insert(extra.end(), value.changed.begin(), value.changed.end());
    const bool kill = i % 3 != 2;
    const std::int64_t lines = run.steps_logged() + pick(0, 2 * steps / (interruptions + 1));
    auto process = run.start(extra, value.environment);
    process->wait_until([&] { return run.steps_logged() > lines; });
    std::this_thread::sleep_for(std::chrono::microseconds(pick(0, 15'000)));
    process->send(kill ? SIGKILL : SIGTERM);
    ended = process->wait();
    if (ended.exit_code == 0) break;  // was quicker than the signal
    if (kill) {
      EXPECT_EQ(ended.signal, SIGKILL) << ended.err;
      ++kills;
    } else {
      EXPECT_EQ(ended.exit_code, 75) << ended.err;
      EXPECT_THAT(ended.last_line(), ::testing::StartsWith("interrupted step="));
    }
  }
  EXPECT_GE(kills, 1) << "nothing was killed: the test proves nothing";
  if (ended.exit_code != 0) ended = run.finish({}, value.environment);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.last_line(), expected.last_line());
  EXPECT_EQ(read_losses(run.metrics()).by_step, losses.by_step);
}

INSTANTIATE_TEST_SUITE_P(
    Runs, BitExact,
    ::testing::Values(
        Case{"Plain", 40, {}, {"--workers", "3"}},
        Case{"ThreeWorkersToNone", 40, {"--workers", "3"}, {}, "2", {}, true},
        Case{"WorkersChange", 40, {}, {"--workers", "0"}, "2", {}, true},
        Case{"AdamW", 40, {"--optimizer", "adamw", "--clip-grad-norm", "1"}, {"--workers", "2"}},
        Case{"CifarStem", 12, {"--stem", "cifar"}, {}, "2", {}, true},
        Case{"Accumulation",
             13,
             {"--batch-size", "48", "--micro-batch-size", "16"},
             {"--workers", "3"},
             "2",
             {},
             true},
        Case{"AccumulationAdamWCifar",
             7,
             {"--batch-size", "48", "--micro-batch-size", "16", "--optimizer", "adamw", "--stem", "cifar"},
             {},
             "2",
             {},
             true},
        Case{"OneEpochExactly", 16, {}, {}, "2", {}, true},
        // These overflow until the scale has come down: beyond the first interruptions.
        Case{"Fp16", 28, {"--precision", "fp16", "--loss-scale", "67108864"}, {}, "2", {}, true},
        Case{"Fp16AccumulationClippedAdamW",
             9,
             {"--precision", "fp16", "--loss-scale", "8192", "--batch-size", "48", "--micro-batch-size", "16",
              "--clip-grad-norm", "1", "--optimizer", "adamw"},
             {"--workers", "3"},
             "2",
             {},
             true},
        Case{"ChannelsLastTorchSgdSmoothed",
             12,
             {"--channels-last", "--optimizer", "torch-sgd", "--label-smoothing", "0.1"},
             {},
             "2",
             {},
             true},
        Case{"ChannelsLastBf16Lamb",
             12,
             {"--channels-last", "--precision", "bf16", "--optimizer", "lamb"},
             {}},
        Case{"FusedBatchNormsGraphOrNot", 12, {"--channels-last", "--bn", "fused"}, {"--graph"}, "4"},
        // As on a GPU: each result is read one step late. The straight run knows it at once.
        Case{"LateResults", 20, {}, {"--workers", "2"}, "2", {{"HOLDFAST_LATE_RESULTS", "1"}}, true},
        Case{"LateResultsFp16AccumulationClipped",
             12,
             {"--precision", "fp16", "--loss-scale", "8192", "--batch-size", "48", "--micro-batch-size", "16",
              "--clip-grad-norm", "1"},
             {},
             "2",
             {{"HOLDFAST_LATE_RESULTS", "1"}}},
        Case{"Recipe94", 12, {"--recipe", "94"}, {"--workers", "3"}}),
    [](const auto& info) { return info.param.name; });

// The first and the last step: one step a life, so that each of them is first and last once.
TEST(BitExactOneByOne, EveryStepInALifeOfItsOwn) {
  const std::vector<std::string> words = small({"--schedule-steps", "20", "--epochs", "1"});
  const ExampleRun straight(words);
  const Ended expected = straight.finish();
  ASSERT_EQ(expected.exit_code, 0) << expected.err;

  const std::vector<std::string> by_steps = small({"--schedule-steps", "20"});
  const ExampleRun run(by_steps);
  Ended ended;
  for (const char* step : {"1", "2", "3", "15", "16"}) {
    ended = run.finish({"--steps", step, "--no-eval"});
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_EQ(value_of(ended.last_line(), "step="), step);
  }
  EXPECT_EQ(value_of(ended.last_line(), "state="), value_of(expected.last_line(), "state="));
  EXPECT_EQ(read_losses(run.metrics()).by_step, read_losses(straight.metrics()).by_step);
}

// A life each while the scale comes down: the skips, the scale and the learning rate go on where they were.
TEST(BitExactFp16, RoundUpdatesThatOverflow) {
  const std::vector<std::string> words =
      small({"--precision", "fp16", "--loss-scale", "16777216", "--schedule-steps", "20", "--no-eval"});
  const auto with = [&](const char* steps) { return std::vector<std::string>{"--steps", steps}; };
  const ExampleRun straight(words);
  const Ended expected = straight.finish(with("24"));
  ASSERT_EQ(expected.exit_code, 0) << expected.err;
  std::int64_t skipped = 0;
  std::string stands_at;  // the learning rate of the step before, where that one was left out
  for (const auto& line : lines_of(read_text(straight.metrics()))) {
    const std::string rate = value_of(line, "\"lr\":");
    if (!stands_at.empty()) {
      EXPECT_EQ(rate, stands_at) << line;
    }
    const bool left_out = line.find("\"skipped\":true") != std::string::npos;
    stands_at = left_out ? rate : "";
    skipped += left_out ? 1 : 0;
  }
  EXPECT_GE(skipped, 6) << "nothing overflowed: the test proves nothing";
  EXPECT_LE(skipped, 20) << "nothing was trained: the test proves little";

  const ExampleRun run(words);
  Ended ended;
  for (const char* step : {"1", "2", "5", "12", "24"}) {
    ended = run.finish(with(step));
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
  }
  EXPECT_EQ(ended.last_line(), expected.last_line());
  EXPECT_EQ(read_losses(run.metrics()).by_step, read_losses(straight.metrics()).by_step);
}

// What this trains is bit for bit what torch::optim::SGD trains.
TEST(BitExactFused, SgdIsTheSameRun) {
  const auto weights = [](const char* optimizer) {
    const ExampleRun run(small({"--steps", "6", "--no-eval", "--optimizer", optimizer}));
    EXPECT_EQ(run.finish().exit_code, 0);
    return read_losses(run.metrics()).by_step;
  };
  EXPECT_EQ(weights("sgd"), weights("torch-sgd"));
}

}}  // namespace holdfast::test
