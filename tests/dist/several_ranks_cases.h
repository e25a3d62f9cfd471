// What several ranks promise, whatever connects them: the cases of dist_gloo_ranks_test (CPUs, Gloo) and of
// gpu_nccl_ranks_test (one GPU or several, NCCL). The including file has a fixture `SeveralRanks` with
// `device()` and `environment()`.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dist/rank_output.h"
#include "resume/example_run.h"
#include "support/nightly.h"
#include "support/subprocess.h"

namespace holdfast::test {

using Words = std::vector<std::string>;
using Environment = std::map<std::string, std::string>;

class RunOfRanks {
 public:
  RunOfRanks(std::string device, Environment environment)
      : device_(std::move(device)), environment_(std::move(environment)) {
    environment_["OMP_NUM_THREADS"] = "1";
    // What launch waits, besides, for a rank that is stopped.
    environment_["HOLDFAST_TERM_GRACE"] = "20s";
  }
  std::filesystem::path run() const { return folder_.path() / "run"; }
  Words command(int ranks, const Words& more, int steps) const {
    Words words = {program("holdfast"),
                   "launch",
                   "--nproc",
                   std::to_string(ranks),
                   "--",
                   program("../tests/several_ranks"),
                   run().string(),
                   std::to_string(steps),
                   "device=" + device_};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::unique_ptr<Subprocess> start(int ranks, const Words& more = {}, int steps = 20) const {
    return std::make_unique<Subprocess>(command(ranks, more, steps), environment_);
  }
  Ended finish(int ranks, const Words& more = {}, int steps = 20) const {
    return start(ranks, more, steps)->wait(std::chrono::minutes(5));
  }

 private:
  std::string device_;
  Environment environment_;
  TemporaryFolder folder_;
};

// "STEP DIGEST", which all ranks must tell alike.
inline std::string state_of(const Ended& ended, int ranks) {
  const auto states = said(ended, ranks, "state");
  EXPECT_THAT(states, testing::SizeIs(ranks)) << ended.out << ended.err;
  if (states.empty()) return "";
  EXPECT_THAT(states, testing::Each(states[0]));
  return states[0];
}

// Rank 0's losses by step.
inline std::map<int, double> losses_of(const Ended& ended) {
  std::map<int, double> losses;
  for (const std::string& line : said(ended, 1, "loss")) {
    const auto blank = line.find(' ');
    losses[std::stoi(line)] = std::stod(line.substr(blank + 1));
  }
  return losses;
}

}  // namespace holdfast::test

namespace holdfast::test { namespace {

// Loops that announce their updates, and others: a device copies them in other ways beside the training.
const Words kKinds[] = {{"late=1"}, {"sharded=1"}, {"fp16=1"}, {"sharded=1", "fp16=1", "late=1"}};

TEST_F(SeveralRanks, GoOnWithWeightsThatAreFrozenAndEachRankComparesItsOwn) {
  const RunOfRanks straight(device(), environment()), broken(device(), environment());
  const Ended whole = straight.finish(2, {"frozen=1"});
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  ASSERT_EQ(broken.finish(2, {"frozen=1"}, 8).exit_code, 0);
  const Ended other = broken.finish(2, {"frozen=2"});
  EXPECT_EQ(other.exit_code, 78) << other.err;
  EXPECT_THAT(other.err, testing::HasSubstr("model/first.weight has other bytes here"));
  const Ended rest = broken.finish(2, {"frozen=1"});
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_THAT(said(rest, 2, "resumed"), testing::Each("8"));
  EXPECT_EQ(state_of(rest, 2), state_of(whole, 2));
}

TEST_F(SeveralRanks, ComputeWhatOneDoesAndTheSameBitsEachTime) {
  const RunOfRanks one(device(), environment());
  const Ended alone = one.finish(1);
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  const auto expected = losses_of(alone);
  ASSERT_EQ(expected.size(), 20U);
  std::string state;
  for (int repetition = 0; repetition < 2; ++repetition) {
    const RunOfRanks two(device(), environment());
    const Ended together = two.finish(2);
    ASSERT_EQ(together.exit_code, 0) << together.err;
    // Adam magnifies rounding from step to step; a wrong share of a batch would show in the second digit.
    const double most = 1e-5 * std::abs(expected.begin()->second);
    for (const auto& [step, loss] : losses_of(together)) {
      EXPECT_NEAR(loss, expected.at(step), most) << "step " << step;
    }
    if (repetition == 0) state = state_of(together, 2);
    EXPECT_EQ(state_of(together, 2), state);
  }
}

// Saves at each step. On CPUs by day: all at once.
TEST_F(SeveralRanks, CutAndStartedAgainHaveTheBitsOfAStraightRun) {
  for (const Words& kind : kKinds) {
    if (device() == "cpu" && !nightly() && &kind != std::end(kKinds) - 1) continue;
    SCOPED_TRACE(testing::PrintToString(kind));
    Words words = kind;
    words.insert(words.end(), {"every=1"});
    const RunOfRanks straight(device(), environment());
    const Ended whole = straight.finish(2, words);
    ASSERT_EQ(whole.exit_code, 0) << whole.err;
    const RunOfRanks cut(device(), environment());
    Words hit = words;
    hit.emplace_back("at=kill:1:7");
    EXPECT_NE(cut.finish(2, hit).exit_code, 0);
    const Ended again = cut.finish(2, words);
    ASSERT_EQ(again.exit_code, 0) << again.err;
    EXPECT_THAT(said(again, 2, "resumed"), testing::Each(testing::MatchesRegex("[1-7]")));
    EXPECT_EQ(state_of(again, 2), state_of(whole, 2));
  }
}

// Each of these ends a first life, and the next one goes on. On CPUs by day other suites kill rank 0 and stop ranks.
TEST_F(SeveralRanks, WhateverEndsThemTheNextStartIsExact) {
  const RunOfRanks straight(device(), environment());
  const Ended whole = straight.finish(2);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const std::string expected = state_of(whole, 2);
  for (const std::string what : {"kill:0", "kill:1", "term:1", "stop:1", "notice:0"}) {
    if (device() == "cpu" && !nightly() && (what == "kill:0" || what == "stop:1")) continue;
    SCOPED_TRACE(what);
    const RunOfRanks run(device(), environment());
    const Ended ended = run.finish(2, {"at=" + what + ":8"});
    if (what.starts_with("kill")) {
      EXPECT_EQ(ended.exit_code, 128 + SIGKILL) << ended.err;
      const std::string rank = "rank " + what.substr(5);
      EXPECT_THAT(ended.err, testing::AnyOf(testing::HasSubstr(rank + " died"),
                                            testing::HasSubstr("no answer came from " + rank)));
    } else if (what.starts_with("stop")) {
      EXPECT_THAT(ended.err, testing::HasSubstr("rank 1 died, hangs or cannot be reached"));
    } else {
      EXPECT_EQ(ended.exit_code, 75) << ended.err;
    }
    EXPECT_THAT(ended.err, testing::Not(testing::HasSubstr("rank 0 did not end: killed")));
    std::filesystem::remove(run.run().string() + ".notice");
    const Ended again = run.finish(2);
    EXPECT_EQ(again.exit_code, 0) << again.err;
    EXPECT_THAT(said(again, 2, "resumed"), testing::Each(testing::Not("0")));
    EXPECT_EQ(state_of(again, 2), expected);
  }
}

TEST_F(SeveralRanks, ASignalToTheLauncherEndsAllWith75) {
  const RunOfRanks run(device(), environment());
  auto first = run.start(2, {}, 1'000'000);
  ASSERT_TRUE(first->wait_until([&] { return first->out().find("loss 8 ") != std::string::npos; },
                                std::chrono::minutes(5)));
  first->send(SIGTERM);
  const Ended ended = first->wait(std::chrono::minutes(5));
  ASSERT_EQ(ended.exit_code, 75) << ended.err;
  const int step = std::stoi(state_of(ended, 2));
  const Ended again = run.finish(2, {}, step + 5);
  EXPECT_EQ(again.exit_code, 0) << again.err;
  const RunOfRanks straight(device(), environment());
  EXPECT_EQ(state_of(again, 2), state_of(straight.finish(2, {}, step + 5), 2));
}

TEST_F(SeveralRanks, OtherNumbersOfThemGoOn) {
  const RunOfRanks run(device(), environment()), straight(device(), environment());
  const auto expected = losses_of(straight.finish(2, {"sharded=1"}, 18));
  ASSERT_EQ(expected.size(), 18U);
  for (const auto& [ranks, steps] : std::vector<std::pair<int, int>>{{2, 6}, {1, 12}, {2, 18}}) {
    const Ended ended = run.finish(ranks, {"sharded=1"}, steps);
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_THAT(said(ended, ranks, "resumed"), testing::Each(std::to_string(steps - 6)));
    for (const auto& [step, loss] : losses_of(ended)) {
      EXPECT_NEAR(loss, expected.at(step), 1e-9 * std::abs(expected.at(step))) << "step " << step;
    }
  }
}

TEST_F(SeveralRanks, GradientsAreThoseOfAPlainReducer) {
  const RunOfRanks run(device(), environment());
  const Ended ended = run.finish(2, {"same=1"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(said(ended, 2, "same"), testing::Each("5 of 5"));
}

TEST_F(SeveralRanks, AnOverflowOnOneRankIsSkippedByAll) {
  for (const Words& kind : {Words{"fp16=1", "sharded=1"}, Words{"fp16=1"}}) {
    if (device() == "cpu" && !nightly() && kind.size() == 1) continue;
    Words words = kind;
    words.emplace_back("spoil=1:4");
    const RunOfRanks run(device(), environment());
    const Ended ended = run.finish(2, words, 8);
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_THAT(said(ended, 2, "skipped"), testing::ElementsAre("1", "1"));
    state_of(ended, 2);
    for (const auto& [step, loss] : losses_of(ended)) EXPECT_TRUE(std::isfinite(loss)) << "step " << step;
  }
}

}}  // namespace holdfast::test
