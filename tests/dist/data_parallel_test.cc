// Trainings of several real processes over Gloo on the loopback device, started by `holdfast launch`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "dist/until_all_ended.h"
#include "support/nightly.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::SizeIs;

using Words = std::vector<std::string>;

constexpr auto kLimit = 10min;

Words rank_program(const std::string& scenario, const fs::path& folder) {
  return {HOLDFAST_RANK_PROGRAM, scenario, folder.string()};
}

class DataParallel : public testing::Test {
 protected:
  std::unique_ptr<Subprocess> start(int ranks, const std::string& scenario, const Words& before = {}) const {
    Words words = {HOLDFAST_BIN_DIR "/holdfast", "launch", "--nproc", std::to_string(ranks), "--"};
    words.insert(words.end(), before.begin(), before.end());
    for (const std::string& word : rank_program(scenario, folder_.path())) words.push_back(word);
    // Two dozen threads on two cores would spend their time waiting for each other.
    return std::make_unique<Subprocess>(
        words, std::map<std::string, std::string>{{"OMP_NUM_THREADS", "1"}, {"HOLDFAST_TERM_GRACE", "1s"}});
  }
  Ended run(int ranks, const std::string& scenario) const { return start(ranks, scenario)->wait(kLimit); }

  // What rank `rank` printed, without its prefix.
  static Words of_rank(const Ended& ended, int rank) {
    Words lines;
    const std::string prefix = "[" + std::to_string(rank) + "] ";
    for (const std::string& line : lines_of(ended.out)) {
      if (line.starts_with(prefix)) lines.push_back(line.substr(prefix.size()));
    }
    return lines;
  }
  static Words words_of(const std::string& line) {
    Words words;
    std::istringstream stream(line);
    for (std::string word; stream >> word;) words.push_back(word);
    return words;
  }
  // torchrun's, of one of two ranks at the port that the folder names.
  std::map<std::string, std::string> variables(const std::string& rank,
                                               std::map<std::string, std::string> more) const {
    more.merge(std::map<std::string, std::string>{{"RANK", rank},
                                                  {"LOCAL_RANK", rank},
                                                  {"WORLD_SIZE", "2"},
                                                  {"LOCAL_WORLD_SIZE", "2"},
                                                  {"MASTER_ADDR", "127.0.0.1"},
                                                  {"MASTER_PORT", read_text(folder_.path() / "port")}});
    return more;
  }
  std::vector<double> parameters(const std::string& setting) const {
    const std::string bytes = read_text(folder_.path() / setting);
    std::vector<double> values(bytes.size() / sizeof(double));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(double));
    return values;
  }

  TemporaryFolder folder_;
};

void expect_close(const std::vector<double>& some, const std::vector<double>& one) {
  ASSERT_EQ(some.size(), one.size());
  ASSERT_GT(one.size(), 1000U);
  double worst = 0;
  for (std::size_t i = 0; i < one.size(); ++i) worst = std::max(worst, std::abs(some[i] - one[i]));
  EXPECT_LT(worst, 1e-12);
}

// Ranks are alike to the bit, and like those of a plain c10d loop; the sums of 1, 2 and 4 differ by rounding
// alone.
TEST_F(DataParallel, TrainsAsC10dDoesAndAsOneProcessDoes) {
  const Ended alone =
      Subprocess(rank_program("compare", folder_.path()), {{"OMP_NUM_THREADS", "1"}}).wait(kLimit);
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  const auto plain = parameters("plain");
  const auto micro = parameters("micro");
  const auto unused = parameters("unused");
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    const Ended ended = run(ranks, "compare");
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    const Words first = of_rank(ended, 0);
    ASSERT_THAT(first, SizeIs(6)) << ended.out;
    for (int rank = 0; rank < ranks; ++rank) {
      const Words lines = of_rank(ended, rank);
      ASSERT_THAT(lines, SizeIs(6)) << ended.out;
      for (std::size_t i = 0; i < lines.size(); ++i) {
        const Words words = words_of(lines[i]);
        EXPECT_TRUE(words[2] == "none" || words[1] == words[2]) << "not as c10d does: " << lines[i];
        EXPECT_EQ(words[3], words_of(first[i])[3]) << "rank " << rank << " differs: " << lines[i];
      }
    }
    expect_close(parameters("plain"), plain);
    expect_close(parameters("micro"), micro);
    expect_close(parameters("unused"), unused);
  }
}

TEST_F(DataParallel, AResumedRunKeepsTheOrderOfItsSums) {
  const Ended ended = run(3, "resume");
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(of_rank(ended, rank),
                testing::ElementsAre("resumed 1 same", "resumed 2 same", "resumed 9 same", "regrouped other"))
        << "the last one: this test would not notice";
  }
}

TEST_F(DataParallel, WhatDiffersIsNamed) {
  const Ended ended = run(3, "mistakes");
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  for (int rank = 0; rank < 3; ++rank) {
    const Words said = of_rank(ended, rank);
    EXPECT_THAT(
        said,
        Contains(AllOf(
            HasSubstr(
                "shape: ranks have different models: rank 1 has 'parameter middle.weight Double [50, 50]'"),
            HasSubstr("where rank 0 has 'parameter middle.weight Double [48, 48]'"))));
    EXPECT_THAT(said, Contains(AllOf(HasSubstr("frozen: "), HasSubstr("rank 1 has 'frozen first.bias"))));
    EXPECT_THAT(said, Contains(AllOf(HasSubstr("more: "), HasSubstr("rank 1 has 'parameter normal.weight"),
                                     HasSubstr("rank 0 lacks"))));
    EXPECT_THAT(said, Contains(AllOf(HasSubstr("drift: "), HasSubstr("'last.bias' of rank 1"))));
    EXPECT_THAT(said, Contains(AllOf(HasSubstr("order: "), HasSubstr("6 parameters"))));
    EXPECT_THAT(said,
                Contains(AllOf(HasSubstr("unused: no gradient in this step for middle.weight, middle.bias: "),
                               HasSubstr("find_unused"))));
  }
}

// Some rank's sentence names rank `rank`, alone or with one that was too slow to answer the roll.
testing::Matcher<std::string> names_as_lost(int rank) {
  return testing::ContainsRegex("ranks? [0-9 and,]*" + std::to_string(rank) +
                                "[0-9 and,]* (died|ended), hangs or cannot be reached[^\n]*\\(gradients: ");
}

TEST_F(DataParallel, ALostRankIsNamedAndTheOthersEnd) {
  struct Case {
    const char* scenario;
    int code;
    testing::Matcher<std::string> says;
  };
  std::vector<Case> cases = {
      {"zero dies", 128 + SIGKILL, names_as_lost(0)},
      {"throws", 70, testing::ContainsRegex("rank 1 ended with an error of its own[^\n]*\\(gradients: ")}};
  // By day dist_lost_rank_noticed_test kills others than rank 0.
  if (nightly()) cases.push_back({"dies", 128 + SIGKILL, names_as_lost(1)});
  std::vector<std::unique_ptr<Subprocess>> runs;
  for (const Case& one : cases) {
    const fs::path over = folder_.path() / one.scenario;
    fs::create_directory(over);
    runs.push_back(start(3, one.scenario, until_all_ended(3, over)));
  }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Ended ended = runs[i]->wait(kLimit);
    EXPECT_EQ(ended.signal, 0) << cases[i].scenario << " does not end";
    EXPECT_EQ(ended.exit_code, cases[i].code) << cases[i].scenario << ended.err;
    EXPECT_THAT(ended.err, cases[i].says) << cases[i].scenario;
  }
}

// Whoever hangs is killed by the launcher, in the end. Both at once: most of it is waiting. By day a rank other than 0.
TEST_F(DataParallel, ARankThatHangsIsNamedAndTheOthersEnd) {
  std::vector<const char*> scenarios = {"hangs"};
  if (nightly()) scenarios.push_back("hangs at zero");
  std::vector<std::unique_ptr<Subprocess>> runs;
  for (const char* const scenario : scenarios) runs.push_back(start(3, scenario));
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Ended ended = runs[i]->wait(kLimit);
    EXPECT_EQ(ended.signal, 0) << scenarios[i] << " does not end";
    EXPECT_EQ(ended.exit_code, 128 + SIGKILL) << scenarios[i] << ended.err;
    EXPECT_THAT(ended.err, names_as_lost(i == 0 ? 1 : 0)) << scenarios[i];
  }
}

TEST_F(DataParallel, ARankThatNeverArrivesIsNamed) {
  const Ended ended = run(2, "late");
  EXPECT_EQ(ended.signal, 0) << ended.err;
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("rank 1 of 2 did not come to 127.0.0.1:"), HasSubstr("within 5.0 s")));
}

// The second job at a port is turned away, and the first does not notice.
TEST_F(DataParallel, TwoJobsAtOnePortAreToldApart) {
  const auto first = start(2, "first");
  ASSERT_TRUE(first->wait_until([&] { return fs::exists(folder_.path() / "port"); }, kLimit)) << first->err();
  const auto other = [&](const char* rank) {
    return Subprocess(rank_program("second", folder_.path()),
                      variables(rank, {{"HOLDFAST_LAUNCH_JOB", "another"}}))
        .wait(kLimit);
  };
  const Ended zero = other("0");
  EXPECT_EQ(zero.exit_code, 64) << zero.err;
  EXPECT_THAT(zero.err, AllOf(HasSubstr("rank 0 cannot listen on port"), HasSubstr("another MASTER_PORT")));
  const Ended one = other("1");
  EXPECT_EQ(one.exit_code, 64) << one.err;
  EXPECT_THAT(one.err, AllOf(HasSubstr("rank 1 of job another"), HasSubstr("two jobs at one port")));
  write_text(folder_.path() / "second is over", "");
  const Ended ended = first->wait(kLimit);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(of_rank(ended, 0), Words{"met"});
  EXPECT_EQ(of_rank(ended, 1), Words{"met"});
}

// A process that was left over, or started by hand: it has all of the job's variables. Rank 2 has not come
// yet.
TEST_F(DataParallel, TwoProcessesOfOneRankAreNamed) {
  const auto first = start(3, "first");
  ASSERT_TRUE(first->wait_until([&] { return fs::exists(folder_.path() / "port"); }, kLimit)) << first->err();
  const std::string job = read_text(folder_.path() / "job");
  Subprocess stray(rank_program("second", folder_.path()),
                   variables("1", {{"WORLD_SIZE", "3"}, {"HOLDFAST_LAUNCH_JOB", job}}));
  const Ended ended = first->wait(kLimit);
  EXPECT_NE(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err + stray.wait(kLimit).err, HasSubstr("a rank 1 is at 127.0.0.1:"));
}

// Its agent outlives the ranks, and starts them again. Each agent counts restarts for itself, and not all of them.
TEST_F(DataParallel, TorchrunsAgentKeepsTheStore) {
  Subprocess agent(rank_program("agent", folder_.path()));
  ASSERT_TRUE(agent.wait_until([&] { return fs::exists(folder_.path() / "port"); }, kLimit)) << agent.err();
  for (const char* const restart : {"0", "1"}) {
    std::map<std::string, std::string> more = {{"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                               {"TORCHELASTIC_RESTART_COUNT", restart}};
    Subprocess zero(rank_program("second", folder_.path()), variables("0", more));
    more["TORCHELASTIC_RESTART_COUNT"] = "0";
    Subprocess one(rank_program("second", folder_.path()), variables("1", more));
    for (Subprocess* const rank : {&zero, &one}) {
      const Ended ended = rank->wait(kLimit);
      EXPECT_EQ(ended.exit_code, 0) << ended.err;
      EXPECT_EQ(ended.out, "met\n");
    }
  }
  write_text(folder_.path() / "over", "");
  agent.wait(kLimit);
}

}}  // namespace holdfast::test
