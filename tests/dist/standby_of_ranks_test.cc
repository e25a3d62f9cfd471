// `holdfast supervise --standby` for a run of several ranks: two ranks train, and two others wait together until
// the run is free. Rank 0 looks at the run, and the other ranks wait for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "dist/ranks.h"
#include "holdfast/store/names.h"
#include "holdfast/store/run_state.h"
#include "holdfast/store/standby_sign.h"
#include "support/nightly.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

using Process = std::unique_ptr<Subprocess>;

constexpr std::chrono::minutes kPatience{5};
const std::string kHoldfast = HOLDFAST_BIN_DIR "/holdfast";
// No test waits for the end of such a run.
const Words kSlow = {"every=2", "pause=200"};
constexpr int kEndless = 1'000'000;
// Beyond what a slow run reaches while a test looks at it.
constexpr int kFar = 1000;
const Words kQuick = {"every=100"};
const Environment kStandsBy = {{"HOLDFAST_STANDBY", "1"}};

bool reached(const Process& process, const std::function<bool()>& condition) {
  return process->wait_until(condition, kPatience);
}

// Two ranks that no launcher would end. `more` is for both, `of_rank_1` for the second one.
struct Pair {
  explicit Pair(const Words& command, const Environment& more = {}, const Environment& of_rank_1 = {}) {
    ranks.reserve(2);
    for (const int rank : {0, 1}) {
      Environment place = meeting.of_rank(rank);
      place.insert(more.begin(), more.end());
      if (rank == 1) place.insert(of_rank_1.begin(), of_rank_1.end());
      ranks.push_back(std::make_unique<Subprocess>(command, place));
    }
  }
  std::vector<Ended> wait() const {
    std::vector<Ended> ended;
    ended.reserve(ranks.size());
    for (const Process& rank : ranks) ended.push_back(rank->wait(kPatience));
    return ended;
  }
  std::string errors() const { return ranks[0]->err() + ranks[1]->err(); }

  const Meeting meeting;
  std::vector<Process> ranks;
};

Words codes_of(const std::vector<Ended>& ended) {
  Words codes;
  codes.reserve(ended.size());
  for (const Ended& one : ended) {
    codes.push_back(one.signal != 0 ? "signal " + std::to_string(one.signal) : std::to_string(one.exit_code));
  }
  return codes;
}

class StandbyOfRanks : public testing::Test {
 protected:
  fs::path run() const { return folder_.path() / "run"; }
  static Words launched(int ranks, const Words& story) {
    Words words = {kHoldfast, "launch", "--nproc", std::to_string(ranks), "--"};
    words.insert(words.end(), story.begin(), story.end());
    return words;
  }
  static Process start(const Words& command, Environment environment = {}) {
    environment.insert({{"OMP_NUM_THREADS", "1"}, {"HOLDFAST_TERM_GRACE", "120s"}});
    return std::make_unique<Subprocess>(command, environment);
  }
  // Returns once something is durable.
  Process hold(int ranks = 2, const Environment& environment = {}) const {
    Process holder = start(launched(ranks, story(run(), kEndless, kSlow)), environment);
    EXPECT_TRUE(reached(holder, [&] { return holder->out().find("saved ") != std::string::npos; }))
        << holder->err();
    return holder;
  }
  Words supervised(int ranks, int steps = kFar, const Words& more = kQuick) const {
    Words words = {kHoldfast, "supervise", "--standby", "--first-delay", "1ms", "--directory", run(), "--"};
    const Words trainer = launched(ranks, story(run(), steps, more));
    words.insert(words.end(), trainer.begin(), trainer.end());
    return words;
  }
  // Returns once it has a checkpoint at hand.
  Process stand_by(int ranks = 2, int steps = kFar, const Words& pace = kQuick) const {
    Process standby = start(supervised(ranks, steps, pace));
    EXPECT_TRUE(reached(standby, [&] { return is_ready(); })) << standby->err();
    return standby;
  }
  std::unique_ptr<Pair> pair_stands_by() const {
    auto pair = std::make_unique<Pair>(story(run(), kFar, kQuick), kStandsBy);
    EXPECT_TRUE(reached(pair->ranks[0], [&] { return is_ready(); })) << pair->errors();
    return pair;
  }
  std::optional<StandbySign> sign() const {
    return standby_sign_from_json(read_text(run() / "standby.json"));
  }
  bool is_ready() const { return sign() && sign()->step >= 0; }
  std::set<AttemptNumber> claims() const {
    std::set<AttemptNumber> found;
    for (const auto& entry : fs::directory_iterator(run() / kAttemptsDirectory)) {
      if (const auto claim = parse_claim_name(entry.path().filename().native())) found.insert(*claim);
    }
    return found;
  }
  static const Words& undisturbed() {
    static const Words end = [] {
      const TemporaryFolder folder;
      const Ended whole = launch(2, story(folder.path() / "whole", kFar, {"every=1000"}));
      EXPECT_EQ(whole.exit_code, 0) << whole.err;
      return said(whole, 2, "state");
    }();
    return end;
  }
  void expect_goes_on(const Process& standby) const {
    const Ended ended = standby->wait(kPatience);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_THAT(said(ended, 2, "resumed"), AllOf(SizeIs(2), Each(HasSubstr(" exact")))) << ended.err;
    EXPECT_EQ(said(ended, 2, "state"), undisturbed());
  }
  void say(const RunState& state) const {
    fs::create_directories(run() / kAttemptsDirectory);
    write_text(run() / kAttemptsDirectory / claim_name(state.attempt), "");
    write_text(run() / kAttemptsDirectory / state_name(state.attempt), to_json(state));
  }

  TemporaryFolder folder_;
};

TEST_F(StandbyOfRanks, GoesOnWhenTheHolderIsInterrupted) {
  const Process holder = hold();
  const Process standby = stand_by();
  EXPECT_THAT(standby->err(), HasSubstr("standing by for attempt 1"));
  EXPECT_THAT(claims(), ElementsAre(1));
  holder->send(SIGTERM);
  const Ended left = holder->wait(kPatience);
  EXPECT_EQ(left.exit_code, 75) << left.err;
  expect_goes_on(standby);
  EXPECT_THAT(claims(), ElementsAre(1, 2));
  EXPECT_FALSE(sign()) << "it waits no more";
}

TEST_F(StandbyOfRanks, GoesOnFromAKilledHolderAfterATakeover) {
  const Pair holder(story(run(), kEndless, kSlow));
  ASSERT_TRUE(reached(holder.ranks[0], [&] {
    return holder.ranks[0]->out().find("saved ") != std::string::npos;
  })) << holder.errors();
  const Process standby = stand_by();
  for (const Process& rank : holder.ranks) rank->send(SIGKILL);
  holder.wait();
  const auto renewed = sign() ? sign()->unix_ms : 0;
  ASSERT_TRUE(reached(standby, [&] { return sign() && sign()->unix_ms > renewed; })) << standby->err();
  EXPECT_THAT(claims(), ElementsAre(1)) << "silence is no end";
  const Ended told = Subprocess({kHoldfast, "takeover", run()}).wait();
  EXPECT_EQ(told.exit_code, 0) << told.err;
  expect_goes_on(standby);
  EXPECT_THAT(claims(), ElementsAre(1, 2, 3));
}

TEST_F(StandbyOfRanks, EndsAtSigtermAndHasClaimedNothing) {
  if (!nightly()) GTEST_SKIP() << "EndsTogetherWhicheverRankIsToldToStop does, without a supervisor";
  const Process holder = hold();
  const Process standby = stand_by();
  standby->send(SIGTERM);
  const Ended ended = standby->wait(kPatience);
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("while standing by; nothing was claimed"));
  EXPECT_THAT(ended.err, Not(HasSubstr("frame #")));
  EXPECT_THAT(claims(), ElementsAre(1));
  EXPECT_FALSE(sign());
  EXPECT_TRUE(holder->running());
}

// Nobody tells the other rank but the ranks themselves.
TEST_F(StandbyOfRanks, EndsTogetherWhicheverRankIsToldToStop) {
  const Process holder = hold();
  for (const int rank : {0, 1}) {
    SCOPED_TRACE(rank);
    const auto standby = pair_stands_by();
    standby->ranks[static_cast<std::size_t>(rank)]->send(SIGTERM);
    const auto ended = standby->wait();
    EXPECT_THAT(codes_of(ended), Each("75")) << standby->errors();
    EXPECT_THAT(ended[0].err, HasSubstr("while standing by; nothing was claimed"));
    EXPECT_THAT(ended[0].err, HasSubstr(rank == 0 ? "interrupted (SIGTERM" : "rank 1: interrupted (SIGTERM"));
    EXPECT_THAT(standby->errors(), Not(HasSubstr("frame #")));
    EXPECT_FALSE(sign());
  }
  EXPECT_THAT(claims(), ElementsAre(1));
}

TEST_F(StandbyOfRanks, EndsAndNamesARankThatIsLost) {
  const Process holder = hold();
  std::vector<int> signals = {SIGKILL};
  if (nightly()) signals.push_back(SIGSTOP);  // dist_lost_rank_noticed_test stops ranks by day
  for (const int signal : signals) {
    SCOPED_TRACE(signal);
    const auto standby = pair_stands_by();
    standby->ranks[1]->send(signal);
    const Ended ended = standby->ranks[0]->wait(kPatience);
    EXPECT_EQ(ended.exit_code, 75) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("rank 1 died, hangs or cannot be reached"));
    EXPECT_FALSE(sign());
  }
  EXPECT_THAT(claims(), ElementsAre(1));
  EXPECT_TRUE(holder->running());
}

TEST_F(StandbyOfRanks, IsStartedAgainAsAStandby) {
  const Process holder = hold();
  const Process standby = stand_by();
  const auto first = sign();
  ASSERT_TRUE(first);
  kill(static_cast<pid_t>(first->pid), SIGKILL);  // rank 0
  ASSERT_TRUE(reached(standby, [&] { return is_ready() && sign()->pid != first->pid; })) << standby->err();
  EXPECT_THAT(standby->err(), HasSubstr("rank 0 failed"));
  EXPECT_THAT(claims(), ElementsAre(1));
  holder->send(SIGTERM);
  EXPECT_EQ(holder->wait(kPatience).exit_code, 75);
  expect_goes_on(standby);
}

TEST_F(StandbyOfRanks, EndsAsTheHolderWhereNobodyMayGoOn) {
  RunState state{.attempt = 1, .phase = RunPhase::failed, .step = 7};
  state.reason = "another model";
  std::vector<int> codes = {64};
  if (nightly()) codes.insert(codes.end(), {76, 78});
  for (const int code : codes) {
    state.exit_code = code;
    say(state);
    const Pair standby(story(run(), 10), kStandsBy);
    EXPECT_THAT(codes_of(standby.wait()), Each(std::to_string(code))) << standby.errors();
    EXPECT_THAT(standby.ranks[0]->err(), HasSubstr("another model; this standby has claimed nothing"));
    EXPECT_THAT(standby.errors(), Not(HasSubstr("frame #")));
  }
  EXPECT_THAT(claims(), ElementsAre(1));
  EXPECT_EQ(start(supervised(2))->wait(kPatience).exit_code, codes.back());
}

TEST_F(StandbyOfRanks, EndsWith0WhenTheHolderCompletesTheRun) {
  const Words until_told = {"every=5", "at=wait:0:12"};
  const Process holder = start(launched(2, story(run(), 20, until_told)));
  const Process standby = start(supervised(2, 20));
  EXPECT_TRUE(reached(standby, [&] { return is_ready(); })) << standby->err();
  EXPECT_THAT(standby->err(), HasSubstr("standing by for"));
  write_text(run().native() + ".go", "");
  EXPECT_EQ(holder->wait(kPatience).exit_code, 0);
  const Ended ended = standby->wait(kPatience);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("this standby is not needed"));
  EXPECT_THAT(ended.err, Not(HasSubstr("frame #")));
  EXPECT_THAT(claims(), ElementsAre(1));
}

TEST_F(StandbyOfRanks, ThatDoesNotFitTheRunSaysSoWhileTheHolderLives) {
  const Process holder = hold();
  const Ended ended = start(supervised(2, kFar, {"floats=7"}))->wait(kPatience);
  EXPECT_EQ(ended.exit_code, 78) << ended.err;
  EXPECT_THAT(claims(), ElementsAre(1));
  EXPECT_TRUE(holder->running());
}

TEST_F(StandbyOfRanks, OfTwoOneGoesOnAndTheOtherWaits) {
  const Process holder = hold();
  const auto standing_by = [&] {
    Process standby = start(supervised(2, kEndless, kSlow));
    EXPECT_TRUE(reached(standby, [&] {
      return standby->err().find("standing by for attempt 1") != std::string::npos;
    })) << standby->err();
    return standby;
  };
  const Process first = standing_by();
  const Process second = standing_by();
  holder->send(SIGTERM);
  EXPECT_EQ(holder->wait(kPatience).exit_code, 75);
  const auto went_on = [](const Process& one) { return one->out().find("saved ") != std::string::npos; };
  ASSERT_TRUE(reached(first, [&] { return went_on(first) || went_on(second); }))
      << first->err() << second->err();
  const Process& winner = went_on(first) ? first : second;
  const Process& other = went_on(first) ? second : first;
  EXPECT_TRUE(reached(other, [&] {
    return other->err().find("standing by for attempt 2") != std::string::npos;
  })) << other->err();
  EXPECT_THAT(claims(), ElementsAre(1, 2));
  for (const Process* const one : {&winner, &other}) {
    ASSERT_TRUE(reached(*one, [&] { return went_on(*one); })) << (*one)->err();
    (*one)->send(SIGTERM);
    const Ended ended = (*one)->wait(kPatience);
    EXPECT_EQ(ended.exit_code, 75) << ended.err;
    EXPECT_THAT(said(ended, 2, "resumed"), AllOf(SizeIs(2), Each(HasSubstr(" exact"))));
  }
  EXPECT_THAT(claims(), ElementsAre(1, 2, 3));
}

TEST_F(StandbyOfRanks, OfAnotherSizeGoesOn) {
  std::vector<int> sizes = {1};
  if (nightly()) sizes.push_back(2);
  for (const int ranks : sizes) {
    SCOPED_TRACE(ranks);
    const Process holder = hold(3 - ranks);
    const Process standby = stand_by(ranks, kEndless, kSlow);
    holder->send(SIGTERM);
    EXPECT_EQ(holder->wait(kPatience).exit_code, 75);
    ASSERT_TRUE(reached(standby, [&] { return standby->out().find("resumed ") != std::string::npos; }))
        << standby->err();
    standby->send(SIGTERM);
    const Ended ended = standby->wait(kPatience);
    EXPECT_EQ(ended.exit_code, 75) << ended.err;
    EXPECT_THAT(said(ended, ranks, "resumed"), AllOf(SizeIs(ranks), Each(Not("0 not-exact"))));
    EXPECT_FALSE(sign());
  }
}

// Rank 1 alone hears of the end, and rank 0 decides for all. The end lies behind that of this test.
TEST_F(StandbyOfRanks, LetsAHolderWithADeadlineHandOverAtOnce) {
  const fs::path notice = folder_.path() / "notice";
  const Pair holder(story(run(), kEndless, kSlow), {}, {{"HOLDFAST_NOTICE_FILE", notice.native()}});
  const Process standby = start(supervised(2));
  ASSERT_TRUE(
      reached(holder.ranks[0],
              [&] { return holder.ranks[0]->err().find("this run hands over to it") != std::string::npos; }))
      << holder.errors() << standby->err();
  write_text(notice, R"({"action": "stop", "in_seconds": 3000})");
  EXPECT_THAT(codes_of(holder.wait()), Each("75")) << holder.errors();
  const auto word = run_state_from_json(read_text(run() / kAttemptsDirectory / state_name(1)));
  ASSERT_TRUE(word);
  EXPECT_EQ(word->phase, RunPhase::interrupted);
  EXPECT_THAT(word->reason, HasSubstr("a standby goes on with the run"));
  expect_goes_on(standby);
}

TEST_F(StandbyOfRanks, ClaimsNothingWhileTheEndOfAMachineOfItsOwnIsAnnounced) {
  const fs::path notice = folder_.path() / "notice";
  const Process holder = hold();
  const Pair standby(story(run(), kFar, kQuick), kStandsBy, {{"HOLDFAST_NOTICE_FILE", notice.native()}});
  const Process& leader = standby.ranks[0];
  ASSERT_TRUE(reached(leader, [&] { return is_ready(); })) << standby.errors();
  write_text(notice, R"({"action": "stop", "in_seconds": 3000})");
  ASSERT_TRUE(reached(leader, [&] {
    return leader->err().find("the end of another rank's machine is announced") != std::string::npos;
  })) << standby.errors();
  holder->send(SIGTERM);
  EXPECT_EQ(holder->wait(kPatience).exit_code, 75);
  std::this_thread::sleep_for(1s);  // a claim would come in a fraction of it
  EXPECT_THAT(claims(), ElementsAre(1));
  fs::remove(notice);
  ASSERT_TRUE(reached(leader, [&] { return leader->out().find("resumed ") != std::string::npos; }))
      << standby.errors();
  EXPECT_THAT(codes_of(standby.wait()), Each("0")) << standby.errors();
  EXPECT_THAT(claims(), ElementsAre(1, 2));
}

TEST_F(StandbyOfRanks, GoesOnFromAHome) {
  const fs::path other = folder_.path() / "b" / "run";
  fs::create_directory(other.parent_path());
  const auto supervise = [&](const fs::path& directory, const Words& more, const Words& trainer) {
    Words words = {kHoldfast,       "supervise", "--directory",
                   directory,       "--mirror",  folder_.path() / "home",
                   "--first-delay", "1ms"};
    words.insert(words.end(), more.begin(), more.end());
    words.emplace_back("--");
    const Words ranks = launched(2, trainer);
    words.insert(words.end(), ranks.begin(), ranks.end());
    return start(words);
  };
  const Process holder = supervise(run(), {}, story(run(), kEndless, kSlow));
  ASSERT_TRUE(reached(holder, [&] { return holder->err().find(" is home in ") != std::string::npos; }))
      << holder->err();
  const Process standby = supervise(other, {"--standby"}, story(other, kFar, kQuick));
  ASSERT_TRUE(reached(standby, [&] {
    const auto sign_there = standby_sign_from_json(read_text(other / "standby.json"));
    return sign_there && sign_there->step >= 0;
  })) << standby->err();
  holder->send(SIGTERM);
  EXPECT_EQ(holder->wait(kPatience).exit_code, 75);
  expect_goes_on(standby);
}

}}  // namespace holdfast::test
