// Two ranks evaluate together when the end is announced to one of them: the step boundary is committed while
// they evaluate, once, and a run goes on from it to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "dist/ranks.h"
#include "holdfast/store/names.h"
#include "support/nightly.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::SizeIs;

constexpr int kSteps = 20;
constexpr int kEvaluated = 9;
constexpr char kFarAway[] = R"({"action": "terminate", "in_seconds": 600})";

class Evaluation : public testing::Test {
 protected:
  // Saves nothing by itself.
  Words command(const std::string& run, const Words& more = {}) const {
    Words given = {"every=1000", "evaluate=" + std::to_string(kEvaluated)};
    given.insert(given.end(), more.begin(), more.end());
    return story(folder_.path() / run, kSteps, given);
  }
  void go(const std::string& run) const { write_text((folder_.path() / run).string() + ".go", ""); }
  // Of all ranks at the end of a run that nothing befell.
  Words undisturbed() const {
    go("undisturbed");
    const Ended ended = launch(2, command("undisturbed"));
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_THAT(said(ended, 2, "evaluated"), SizeIs(2));
    return said(ended, 2, "state");
  }
  // Both come to the evaluation; `hears` alone has a notice file.
  void start(const std::string& run, int hears, const Words& more = {}) {
    run_ = folder_.path() / run;
    for (const int rank : {0, 1}) {
      Environment place = meeting_->of_rank(rank);
      place["HOLDFAST_SOURCES"] = "signal,file,deadline";
      if (rank == hears) place["HOLDFAST_NOTICE_FILE"] = run_.string() + ".notice";
      ranks_[rank] = std::make_unique<Subprocess>(command(run, more), place);
    }
    for (const auto& rank : ranks_) ASSERT_TRUE(says(*rank, "evaluating")) << rank->err();
  }
  static bool says(Subprocess& rank, const std::string& word) {
    return rank.wait_until([&] { return rank.out().find(word + " ") != std::string::npos; });
  }
  void announce() const { write_text(run_.string() + ".notice", kFarAway); }
  // While they evaluate.
  void boundary_is_committed() {
    const auto file = run_ / checkpoint_name({.attempt = 1, .step = kEvaluated});
    EXPECT_TRUE(ranks_[0]->wait_until([&] { return std::filesystem::exists(file); }))
        << ranks_[0]->err() << ranks_[1]->err();
    for (const auto& rank : ranks_) EXPECT_EQ(rank->out().find("evaluated "), std::string::npos);
  }
  std::array<Ended, 2> end() const { return {ranks_[0]->wait(2min), ranks_[1]->wait(2min)}; }
  int commits_of_the_boundary() const {
    const std::string ledger = read_text(run_ / "ledger-a0001.jsonl");
    const std::string commit = R"("event":"commit","step":)" + std::to_string(kEvaluated) + ",";
    int count = 0;
    for (auto at = ledger.find(commit); at != std::string::npos; at = ledger.find(commit, at + 1)) ++count;
    return count;
  }
  void goes_on_from(std::int64_t step, const Words& state, const Words& more = {}) const {
    EXPECT_EQ(not_whole(run_), "");
    go(run_.filename());
    const Ended next = launch(2, command(run_.filename(), more));
    EXPECT_EQ(next.exit_code, 0) << next.err;
    EXPECT_THAT(said(next, 2, "resumed"), AllOf(SizeIs(2), Each(std::to_string(step) + " exact")))
        << next.err;
    EXPECT_EQ(said(next, 2, "state"), state) << next.err;
  }

  const TemporaryFolder folder_;
  std::filesystem::path run_;
  std::unique_ptr<Meeting> meeting_ = std::make_unique<Meeting>();
  std::unique_ptr<Subprocess> ranks_[2];
};

TEST_F(Evaluation, AnEndThatAnyRankHearsOfCommitsTheBoundaryAtOnce) {
  const Words state = undisturbed();
  for (const int hears : nightly() ? std::vector{0, 1} : std::vector{1}) {
    SCOPED_TRACE("rank " + std::to_string(hears));
    start("told" + std::to_string(hears), hears);
    announce();
    boundary_is_committed();
    go(run_.filename());
    for (const Ended& ended : end()) EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_EQ(commits_of_the_boundary(), 1);
    meeting_ = std::make_unique<Meeting>();

    start("killed" + std::to_string(hears), hears, {"silence=2"});
    announce();
    boundary_is_committed();
    ranks_[1]->send(SIGKILL);
    EXPECT_EQ(end()[0].exit_code, 75);
    goes_on_from(kEvaluated, state);
    meeting_ = std::make_unique<Meeting>();
  }
}

TEST_F(Evaluation, SoDoesASignal) {
  const Words state = undisturbed();
  for (const int hears : nightly() ? std::vector{0, 1} : std::vector{0}) {
    SCOPED_TRACE("rank " + std::to_string(hears));
    start("signal" + std::to_string(hears), -1);
    ranks_[hears]->send(SIGTERM);
    boundary_is_committed();
    go(run_.filename());
    std::int64_t stopped = 0;
    for (const Ended& ended : end()) {
      EXPECT_EQ(ended.exit_code, 75) << ended.err;
      const Words stood = said_alone(ended, "state");
      ASSERT_THAT(stood, SizeIs(1)) << ended.out;
      stopped = std::stoll(stood[0]);
    }
    // They vote once a second, at the latest when the steps are over.
    EXPECT_THAT(stopped, AllOf(testing::Gt(kEvaluated), testing::Le(kSteps)));
    EXPECT_EQ(commits_of_the_boundary(), 1);
    goes_on_from(stopped, state);
    meeting_ = std::make_unique<Meeting>();
  }
}

}}  // namespace holdfast::test
