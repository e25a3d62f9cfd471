// holdfast::Trainer and the examples with several ranks: real processes over Gloo on the loopback device,
// started by `holdfast launch`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "dist/rank_output.h"
#include "resume/example_run.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

using Words = std::vector<std::string>;

constexpr auto kLimit = 10min;

Words words_of(const std::string& line) {
  std::istringstream in(line);
  Words words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::unique_ptr<Subprocess> start_ranks(int ranks, const Words& command,
                                        std::map<std::string, std::string> environment = {}) {
  Words words = {program("holdfast"), "launch", "--nproc", std::to_string(ranks), "--"};
  words.insert(words.end(), command.begin(), command.end());
  environment.emplace("OMP_NUM_THREADS", "1");
  environment.emplace("HOLDFAST_TERM_GRACE", "120s");
  return std::make_unique<Subprocess>(words, environment);
}

class Ranks : public testing::Test {
 protected:
  Ended live(int ranks, const std::string& run, int steps, const Words& more = {}) const {
    Words words = {HOLDFAST_ELASTIC_PROGRAM, (folder_.path() / run).string(), std::to_string(steps)};
    words.insert(words.end(), more.begin(), more.end());
    return start_ranks(ranks, words)->wait(kLimit);
  }

  TemporaryFolder folder_;
};

// The samples of every step in their global order: pass by pass, rank by rank. A step may be made once.
class GlobalOrder {
 public:
  void add(const Ended& ended, int ranks) {
    std::map<int, std::map<int, std::map<int, std::string>>> batches;  // by step, pass and rank
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string prefix = "[" + std::to_string(rank) + "] ids ";
      for (const std::string& line : lines_of(ended.out)) {
        if (!line.starts_with(prefix)) continue;
        const Words words = words_of(line.substr(prefix.size()));
        batches[std::stoi(words.at(0))][std::stoi(words.at(1))][rank] = words.at(2);
      }
    }
    for (const auto& [step, passes] : batches) {
      std::string all;
      for (const auto& [pass, of_ranks] : passes) {
        EXPECT_THAT(of_ranks, SizeIs(ranks)) << "step " << step << ", pass " << pass;
        for (const auto& [rank, ids] : of_ranks) all += (all.empty() ? "" : ",") + ids;
      }
      EXPECT_TRUE(by_step_.emplace(step, all).second) << "step " << step << " was made twice";
    }
  }
  const std::map<int, std::string>& by_step() const { return by_step_; }

 private:
  std::map<int, std::string> by_step_;
};

TEST_F(Ranks, TheGlobalOrderIsThatOfOneRankWhateverTheirNumber) {
  GlobalOrder straight;
  const Ended whole = live(1, "whole", 24);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  straight.add(whole, 1);
  ASSERT_THAT(straight.by_step(), SizeIs(24));

  GlobalOrder order;
  const Ended first = live(4, "run", 24, {"term=3:7"});
  EXPECT_EQ(first.exit_code, 75) << first.err;
  EXPECT_THAT(first.err, HasSubstr("global batch 24 = 4 ranks × 6\n"));
  order.add(first, 4);
  const Ended second = live(2, "run", 24, {"most=5", "term=0:13"});
  EXPECT_EQ(second.exit_code, 75) << second.err;
  EXPECT_THAT(second.err, HasSubstr("global batch 24 = 2 ranks × 4 × 3 micro-batches\n"));
  EXPECT_THAT(said(second, 2, "resumed"), testing::ElementsAre("8 not-exact", "8 not-exact"))
      << "told at 7, voted before the save of step 8" << second.err;
  EXPECT_THAT(second.err, HasSubstr("world size: 4 → 2"));
  order.add(second, 2);
  fs::copy(folder_.path() / "run", folder_.path() / "alone", fs::copy_options::recursive);
  GlobalOrder alone = order;
  const Ended third = live(3, "run", 24);
  EXPECT_EQ(third.exit_code, 0) << third.err;
  // The latest vote is that before the save of step 16.
  const Words stopped = said(third, 3, "resumed");
  ASSERT_THAT(stopped, SizeIs(3)) << third.err;
  EXPECT_THAT(stopped, Each(stopped[0]));
  EXPECT_THAT(stopped[0], testing::AnyOf("14 not-exact", "15 not-exact", "16 not-exact"));
  order.add(third, 3);
  EXPECT_EQ(order.by_step(), straight.by_step());
  const Ended last = live(1, "alone", 24);
  EXPECT_EQ(last.exit_code, 0) << last.err;
  alone.add(last, 1);
  EXPECT_EQ(alone.by_step(), straight.by_step());
}

TEST_F(Ranks, TrainWhatOneProcessTrainsAndStayAlikeToTheBit) {
  const Ended one = live(1, "one", 100);
  ASSERT_EQ(one.exit_code, 0) << one.err;
  const Words losses = said(one, 1, "loss");
  ASSERT_THAT(losses, SizeIs(100));
  for (const auto& [ranks, most] : std::vector<std::pair<int, const char*>>{{2, "most=4"}, {4, "most=0"}}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks, " + most);
    const Ended ended = live(ranks, "run" + std::to_string(ranks) + most, 100, {most});
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    const Words parameters = said(ended, ranks, "parameters");
    EXPECT_THAT(parameters, SizeIs(ranks));
    EXPECT_THAT(parameters, Each(parameters.front()));
    const Words all = said(ended, ranks, "loss");
    ASSERT_THAT(all, SizeIs(100 * ranks));
    for (auto rank = all.begin(); rank != all.end(); rank += 100) {
      EXPECT_TRUE(std::equal(rank, rank + 100, all.begin())) << "the ranks tell different losses";
    }
    double largest = 0;
    for (std::size_t i = 0; i < 100; ++i) {
      largest = std::max(largest,
                         std::abs(std::stod(words_of(all[i]).at(1)) - std::stod(words_of(losses[i]).at(1))));
      if (i == 0) {
        EXPECT_LT(largest, 1e-6);
      }
    }
    EXPECT_LT(largest, 1e-4);
    RecordProperty("largest_difference", std::to_string(largest));
  }
}

// Each rank has its own buffer, and its part of the test data; the checkpoint has rank 0's buffer.
TEST_F(Ranks, AnEvaluationIsThatOfTheCheckpointByOneProcess) {
  const Ended ranks = live(3, "run", 7);
  ASSERT_EQ(ranks.exit_code, 0) << ranks.err;
  const Words scored = said(ranks, 3, "scored");
  ASSERT_THAT(scored, SizeIs(3)) << ranks.out;
  EXPECT_THAT(scored, Each(scored.front()));
  const Ended again = live(1, "run", 7);
  ASSERT_EQ(again.exit_code, 0) << again.err;
  ASSERT_THAT(said(again, 1, "scored"), SizeIs(1)) << again.out;
  const Words here = words_of(scored.front());
  const Words alone = words_of(said(again, 1, "scored").front());
  EXPECT_EQ(here.at(3), "101") << "samples";
  EXPECT_EQ(alone.at(3), "101");
  EXPECT_EQ(here.at(1), alone.at(1)) << "halves add up exactly";
  EXPECT_NEAR(std::stod(here.at(2)), std::stod(alone.at(2)), 1e-6);
}

// No later than the batch after the next, on all ranks; nobody waits for anybody in vain.
TEST_F(Ranks, AStopInsideAnEvaluationEndsItOnAllRanks) {
  const Ended whole = live(2, "whole", 24);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  std::vector<const char*> told = {"1"};
  if (nightly()) told.push_back("0");
  for (const char* const rank : told) {
    const std::string run = std::string("cut") + rank;
    const Ended first = live(2, run, 24, {std::string("term=") + rank + ":eval"});
    EXPECT_EQ(first.exit_code, 75) << first.err;
    EXPECT_THAT(said(first, 2, "interrupted"), SizeIs(2)) << first.out;
    EXPECT_THAT(said(first, 2, "interrupted"), Each(StartsWith("step=10 ")));
    EXPECT_THAT(said(first, 2, "scored"), SizeIs(0));
    const Ended second = live(2, run, 24);
    EXPECT_EQ(second.exit_code, 0) << second.err;
    EXPECT_EQ(said(second, 2, "scored"), said(whole, 2, "scored")) << "the one that was cut short is due";
    EXPECT_EQ(said(second, 2, "parameters"), said(whole, 2, "parameters"));
  }
}

TEST_F(Ranks, AnOverflowOnOneRankIsLeftOutOnAll) {
  const Ended ended = live(2, "run", 8, {"inf=1:3"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  Words skipped;
  for (const std::string& line : said(ended, 2, "loss")) {
    if (line.ends_with("skipped")) skipped.push_back(words_of(line).front());
  }
  EXPECT_EQ(skipped, (Words{"3", "3"}));
  const Words parameters = said(ended, 2, "parameters");
  ASSERT_THAT(parameters, SizeIs(2));
  EXPECT_EQ(parameters[0], parameters[1]);
}

Ended example(int ranks, const fs::path& directory, const Words& more,
              const std::map<std::string, std::string>& environment = {}) {
  Words words = {program("resnet50_cifar10"), "--checkpoint-dir", directory.string()};
  words.insert(words.end(), more.begin(), more.end());
  return start_ranks(ranks, words, environment)->wait(kLimit);
}

// Rank 0 alone says how it ended: the lines of standard output.
std::string result_of(const Ended& ended) {
  const Words lines = lines_of(ended.out);
  EXPECT_THAT(lines, SizeIs(1)) << ended.out;
  return lines.empty() ? "" : lines.back();
}

TEST_F(Ranks, TheExampleIsInterruptedByItsLastRankAndEndsAsIfItHadNotBeen) {
  const Words words = small({"--steps", "30", "--every", "10steps"});
  const Ended whole = example(2, folder_.path() / "whole", words);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_THAT(result_of(whole), StartsWith("[0] complete step=30 "));
  EXPECT_THAT(whole.err, HasSubstr("global batch 16 = 2 ranks × 8\n"));

  Words command = {program("resnet50_cifar10"), "--checkpoint-dir", (folder_.path() / "cut").string(),
                   "--metrics", (folder_.path() / "cut.jsonl").string()};
  command.insert(command.end(), words.begin(), words.end());
  // The last rank tells itself: nobody else knows its number.
  const std::string last =
      R"(if [ "$RANK" = 1 ]; then "$@" & pid=$!; until grep -q '"step":7,' "$0"; do sleep 0.01; )"
      R"(done; kill -TERM $pid; wait $pid; else exec "$@"; fi)";
  Words shell = {"/bin/sh", "-c", last, (folder_.path() / "cut.jsonl").string()};
  write_text(folder_.path() / "cut.jsonl", "");
  shell.insert(shell.end(), command.begin(), command.end());
  // As on a GPU: this life learns results one step late. The others know them at once.
  const Ended first = start_ranks(2, shell, {{"HOLDFAST_LATE_RESULTS", "1"}})->wait(kLimit);
  EXPECT_EQ(first.exit_code, 75) << first.err;
  EXPECT_THAT(result_of(first), StartsWith("[0] interrupted step=")) << first.err;
  const Ended second = start_ranks(2, command)->wait(kLimit);
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(second.err, Not(HasSubstr("not bit-exact")));
  EXPECT_EQ(result_of(second), result_of(whole));

  // The finished run owes its result to whoever starts it again, alone as well: batch norms' running means
  // are rank 0's.
  const Ended alone = example(1, folder_.path() / "cut", words);
  EXPECT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_EQ(value_of(result_of(alone), "test_accuracy="), value_of(result_of(whole), "test_accuracy="));
  EXPECT_EQ(value_of(result_of(alone), "loss="), value_of(result_of(whole), "loss="));
}

TEST_F(Ranks, WhatDoesNotDivideIsRefusedByEachAndTorchrunIsToldWhy) {
  const fs::path file = folder_.path() / "error.json";
  const Ended ended =
      example(3, folder_.path() / "run", small(), {{"TORCHELASTIC_ERROR_FILE", file.string()}});
  EXPECT_EQ(ended.exit_code, 64) << ended.err;
  const std::string sentence =
      "--batch-size: a global batch of 16 does not divide by 3 ranks: make it 15 or 18, or start 2 or 4 "
      "ranks";
  EXPECT_THAT(ended.err, HasSubstr(sentence));
  EXPECT_THAT(read_text(file),
              StartsWith("{\"message\": {\"message\": \"" + sentence + "\", \"extraInfo\": "));
  EXPECT_FALSE(fs::exists(folder_.path() / "run")) << "nothing is touched";
}

// The one that stays ends with the code that was chosen for interruptions.
TEST_F(Ranks, TheExampleEndsWithTheChosenCodeWhenARankIsLost) {
  const fs::path run = folder_.path() / "run", metrics = folder_.path() / "run.jsonl";
  const std::string lose =
      R"(trap : TERM; if [ "$RANK" = 1 ]; then "$@" & pid=$!; until grep -q '"step":7,' "$0"; do sleep 0.01; )"
      R"(done; kill -KILL $pid; wait $pid; else "$@"; echo $? >"$0.code"; fi)";
  write_text(metrics, "");
  Words words = {"/bin/sh",
                 "-c",
                 lose,
                 metrics.string(),
                 program("resnet50_cifar10"),
                 "--checkpoint-dir",
                 run.string(),
                 "--metrics",
                 metrics.string(),
                 "--exit-code-interrupted",
                 "0"};
  for (const std::string& word : small({"--steps", "100000", "--every", "5steps"})) words.push_back(word);
  const Ended ended = start_ranks(2, words)->wait(kLimit);
  EXPECT_THAT(ended.err, HasSubstr("start all ranks again"));
  EXPECT_EQ(read_text(metrics.string() + ".code"), "0\n") << ended.err;
}

TEST_F(Ranks, TheOwnLoopOnSeveralGpusEndsAsTheStraightRun) {
  std::vector<int> numbers = {2};
  if (nightly()) numbers.push_back(1);  // by day resume_own_loop_test has one
  for (const int ranks : numbers) {
    const fs::path directory = folder_.path() / std::to_string(ranks);
    const auto start = [&](const fs::path& run, const std::string& steps) {
      return start_ranks(ranks, {program("multi_gpu"), run.string(), steps});
    };
    // More steps than a loaded host makes before it comes to the signal.
    const auto process = start(directory / "run", "100000000");
    ASSERT_TRUE(
        process->wait_until([&] { return process->err().find("step 200 ") != std::string::npos; }, 5min))
        << process->err();
    process->send(SIGTERM);
    const Ended first = process->wait(kLimit);
    ASSERT_EQ(first.exit_code, 75) << first.err;
    const int stopped = std::stoi(value_of(result_of(first), "step="));
    EXPECT_GE(stopped, 200);
    const std::string steps = std::to_string(stopped + 1000);
    const Ended second = start(directory / "run", steps)->wait(kLimit);
    EXPECT_EQ(second.exit_code, 0) << second.err;
    const Ended straight = start(directory / "straight", steps)->wait(kLimit);
    ASSERT_EQ(straight.exit_code, 0) << straight.err;
    EXPECT_THAT(result_of(straight), StartsWith("[0] step=" + steps + " "));
    EXPECT_LT(std::stod(value_of(result_of(straight), "loss=")), 0.5) << "it learns";
    EXPECT_EQ(result_of(second), result_of(straight));
  }
}

TEST_F(Ranks, StepsOfTheOwnLoopAreANumber) {
  for (const char* const steps : {"10k", "0"}) {
    const Ended ended =
        Subprocess({program("multi_gpu"), (folder_.path() / "run").string(), steps}).wait(kLimit);
    EXPECT_EQ(ended.exit_code, 64) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(std::string("STEPS is ") + steps + ": expected"));
  }
  EXPECT_FALSE(fs::exists(folder_.path() / "run"));
}

}}  // namespace holdfast::test
