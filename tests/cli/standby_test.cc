// `holdfast supervise --standby` and `holdfast takeover`: a second process that is ready when the first one goes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "crash/driver_run.h"
#include "holdfast/store/names.h"
#include "holdfast/store/run_state.h"
#include "holdfast/store/standby_sign.h"
#include "support/subprocess.h"
#include "support/syscall_tracer.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

using Words = std::vector<std::string>;
using Environment = std::map<std::string, std::string>;
using Process = std::unique_ptr<Subprocess>;

const std::string kHoldfast = HOLDFAST_BIN_DIR "/holdfast";
// A step of 10 ms: no test waits for the end of such a run.
const Words kSlow = {"every=5", "pace-us=10000"};
const Words kQuick = {"every=50"};
constexpr std::int64_t kSteps = 1000;
constexpr std::int64_t kEndless = 1'000'000;

Process start(const Words& command, const Environment& environment = {}) {
  return std::make_unique<Subprocess>(command, environment);
}

class Standby : public testing::Test {
 protected:
  fs::path run() const { return folder_.path() / "run"; }

  Process hold(std::int64_t steps, const Words& pace, const Environment& environment = {}) const {
    Process holder = start(driver(run(), steps, pace), environment);
    EXPECT_TRUE(holder->wait_until([&] { return last_step(holder->out(), "started") >= 0; }))
        << holder->err();
    return holder;
  }
  Words supervised(const Words& options, std::int64_t steps, const Words& pace) const {
    Words command = {kHoldfast, "supervise", "--standby", "--first-delay", "1ms", "--directory", run()};
    command.insert(command.end(), options.begin(), options.end());
    command.emplace_back("--");
    const Words trainer = driver(run(), steps, pace);
    command.insert(command.end(), trainer.begin(), trainer.end());
    return command;
  }
  // Returns once it has a checkpoint at hand.
  Process stand_by(std::int64_t steps, const Words& pace, const Words& options = {}) const {
    return ready(start(supervised(options, steps, pace)));
  }
  // A trainer that nobody supervises dies at once when it is killed.
  Process stand_by_alone(std::int64_t steps, const Words& pace) const {
    return ready(start(driver(run(), steps, pace), {{"HOLDFAST_STANDBY", "1"}}));
  }
  Process ready(Process standby) const {
    EXPECT_TRUE(standby->wait_until([&] { return at_hand() >= 0; })) << standby->err();
    return standby;
  }
  std::optional<StandbySign> sign() const {
    return standby_sign_from_json(read_text(run() / "standby.json"));
  }
  std::int64_t at_hand() const {
    const auto found = sign();
    return found ? found->step : -1;
  }
  static bool renewed(const Process& standby, const std::function<std::int64_t()>& value, int times) {
    for (int i = 0; i < times; ++i) {
      const std::int64_t before = value();
      if (!standby->wait_until([&] { return value() > before; })) return false;
    }
    return true;
  }
  std::set<AttemptNumber> claims() const {
    std::set<AttemptNumber> found;
    for (const auto& entry : fs::directory_iterator(run() / "attempts")) {
      if (const auto claim = parse_claim_name(entry.path().filename().native())) found.insert(*claim);
    }
    return found;
  }
  Ended takeover() const { return Subprocess({kHoldfast, "takeover", run()}).wait(); }
  void say(const RunState& state) const {
    fs::create_directories(run() / kAttemptsDirectory);
    write_text(run() / kAttemptsDirectory / claim_name(state.attempt), "");
    write_text(run() / kAttemptsDirectory / state_name(state.attempt), to_json(state));
  }
  // Of a trainer that stands by without a supervisor.
  Ended wait_for(const RunState& state) const {
    say(state);
    return start(driver(run(), 10), {{"HOLDFAST_STANDBY", "1"}})->wait();
  }

  TemporaryFolder folder_;
};

TEST_F(Standby, GoesOnWhenTheHolderIsInterrupted) {
  const Process holder = hold(kEndless, kSlow);
  const Process standby = stand_by(kSteps, kQuick);
  EXPECT_THAT(standby->err(), HasSubstr("standing by for attempt 1"));
  EXPECT_THAT(standby->err(), HasSubstr("whose last sign is"));
  holder->send(SIGTERM);
  const Ended left = holder->wait();
  EXPECT_EQ(left.exit_code, 75) << left.err;
  const Ended ended = standby->wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(last_step(ended.out, "started"), last_step(left.out, "interrupted")) << "no step twice";
  EXPECT_EQ(state_in(ended.last_line()), straight_state(kSteps, kQuick));
  EXPECT_THAT(claims(), ElementsAre(1, 2));
  EXPECT_FALSE(sign()) << "it waits no more";
}

TEST_F(Standby, ClaimsNothingWhileTheHolderLives) {
  const Process holder = hold(400, kSlow);
  const Process standby = stand_by(400, kSlow);
  EXPECT_TRUE(renewed(
      standby, [&] { return at_hand(); }, 2))
      << "it follows newer checkpoints";
  EXPECT_THAT(claims(), ElementsAre(1));
  const Ended complete = holder->wait();
  EXPECT_EQ(complete.exit_code, 0) << complete.err;
  const Ended ended = standby->wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(last_step(ended.out, "started"), -1);
  EXPECT_THAT(claims(), ElementsAre(1));
  EXPECT_FALSE(sign());
}

TEST_F(Standby, EndsAtSigtermAndHasClaimedNothing) {
  const Process holder = hold(kEndless, kSlow);
  const Process standby = stand_by(kSteps, kQuick);
  standby->send(SIGTERM);
  const Ended ended = standby->wait();
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("while standing by; nothing was claimed"));
  EXPECT_THAT(claims(), ElementsAre(1));
  EXPECT_FALSE(sign());
  EXPECT_TRUE(holder->running());
}

TEST_F(Standby, NeverTakesOverBySilence) {
  const Process holder = hold(kEndless, kSlow);
  const Process standby = stand_by(kSteps, kQuick);
  holder->send(SIGKILL);
  holder->wait();
  EXPECT_TRUE(renewed(
      standby, [&] { return sign() ? sign()->unix_ms : 0; }, 2));
  EXPECT_THAT(claims(), ElementsAre(1));
  const Ended told = takeover();
  EXPECT_EQ(told.exit_code, 0) << told.err;
  EXPECT_THAT(told.out, HasSubstr("is fenced off by attempt 2"));
  const Ended ended = standby->wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(state_in(ended.last_line()), straight_state(kSteps, kQuick));
}

TEST_F(Standby, TakeoverEndsAHolderThatLives) {
  const Process holder = hold(kEndless, kSlow);
  const Process standby = stand_by(kSteps, kQuick);
  EXPECT_EQ(takeover().exit_code, 0);
  EXPECT_EQ(holder->wait().exit_code, 76);
  const Ended ended = standby->wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(state_in(ended.last_line()), straight_state(kSteps, kQuick));
  EXPECT_THAT(claims(), ElementsAre(1, 2, 3));
}

TEST_F(Standby, TakeoverOfWhatHasEndedChangesNothing) {
  EXPECT_EQ(takeover().exit_code, 2) << "there is no directory";
  fs::create_directory(run());
  const Ended nobody = takeover();
  EXPECT_EQ(nobody.exit_code, 2);
  EXPECT_THAT(nobody.err, HasSubstr("nobody has trained there"));
  say({.attempt = 1, .phase = RunPhase::interrupted, .exit_code = 75});
  const Ended ended = takeover();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("attempt 1 has ended already (interrupted); nothing was changed"));
  EXPECT_THAT(claims(), ElementsAre(1));
}

// The run completes while takeover is about to claim: nobody goes on with it, and nothing runs at its end again.
TEST_F(Standby, TakeoverOfWhatEndsMeanwhileKeepsThatEnd) {
  if (const auto why = SyscallTracer::why_not()) GTEST_SKIP() << *why;
  RunState state{.attempt = 1, .phase = RunPhase::running};
  say(state);
  SyscallTracer takeover({kHoldfast, "takeover", run()}, {}, fs::canonical(run()));
  ASSERT_TRUE(takeover.run_to([](const ChangingCall& call) { return call.path.ends_with("/attempts/2"); },
                              Moment::before));
  state.phase = RunPhase::complete;
  say(state);
  write_text(run() / kRunStateName, to_json(state));
  const Ended ended = takeover.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out,
              HasSubstr("attempt 1 has just ended (complete); that stands, and attempt 2 repeats it"));
  const auto told = run_state_from_json(read_text(run() / kAttemptsDirectory / state_name(2)));
  ASSERT_TRUE(told);
  EXPECT_EQ(told->phase, RunPhase::complete);
  EXPECT_EQ(told->copy_of, 1u);
}

TEST_F(Standby, TakesOverAfterASilenceOnlyIfThatWasAskedFor) {
  const Process holder = hold(kEndless, kSlow);
  ASSERT_TRUE(
      holder->wait_until([&] { return !fs::is_empty(run()) && fs::exists(run() / "RUN_STATE.json"); }));
  holder->send(SIGKILL);
  holder->wait();
  const Ended ended =
      start(driver(run(), kSteps, kQuick), {{"HOLDFAST_STANDBY", "1"}, {"HOLDFAST_TAKEOVER_AFTER", "1s"}})
          ->wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("has given no sign for"));
  EXPECT_EQ(state_in(ended.last_line()), straight_state(kSteps, kQuick));
}

TEST_F(Standby, OfTwoOneGoesOnAndTheOtherWaits) {
  const Process holder = hold(kEndless, kSlow);
  const Process first = stand_by(kSteps, kSlow);
  const Process second = start(supervised({}, kSteps, kSlow));
  ASSERT_TRUE(second->wait_until(
      [&] { return second->err().find("standing by for attempt 1") != std::string::npos; }));
  holder->send(SIGTERM);
  holder->wait();
  const auto went_on = [](const Process& process) { return last_step(process->out(), "started") >= 0; };
  ASSERT_TRUE(first->wait_until([&] { return went_on(first) || went_on(second); }));
  const Process& winner = went_on(first) ? first : second;
  const Process& other = went_on(first) ? second : first;
  EXPECT_TRUE(other->wait_until([&] {
    return other->err().find("standing by for attempt 2") != std::string::npos;
  })) << other->err();
  EXPECT_THAT(claims(), ElementsAre(1, 2));
  winner->send(SIGTERM);
  EXPECT_EQ(winner->wait().exit_code, 75);
  const Ended ended = other->wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(state_in(ended.last_line()), straight_state(kSteps, kSlow));
  EXPECT_THAT(claims(), ElementsAre(1, 2, 3));
}

TEST_F(Standby, EndsAsTheHolderWhereNobodyMayGoOn) {
  RunState state{.attempt = 1, .phase = RunPhase::failed, .step = 7};
  state.reason = "another model";
  for (const int code : {64, 76, 78}) {
    state.exit_code = code;
    const Ended ended = wait_for(state);
    EXPECT_EQ(ended.exit_code, code) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("another model; this standby has claimed nothing"));
  }
  state.phase = RunPhase::complete;
  EXPECT_EQ(wait_for(state).exit_code, 0);
  EXPECT_THAT(claims(), ElementsAre(1));
  EXPECT_EQ(start(supervised({}, 10, kQuick))->wait().exit_code, 0);
  state.phase = RunPhase::failed;
  state.exit_code = 78;
  say(state);
  EXPECT_EQ(start(supervised({}, 10, kQuick))->wait().exit_code, 78);
  const Words as_torchrun = {kHoldfast, "supervise", "--standby", "--directory", run(), "--", "/bin/false"};
  EXPECT_EQ(start(as_torchrun)->wait().exit_code, 78) << "that ends with 1 after every failure";
  EXPECT_THAT(claims(), ElementsAre(1));
  // It gave the run up, and another machine may do better.
  state.exit_code = 74;
  EXPECT_EQ(wait_for(state).exit_code, 0);
  EXPECT_THAT(claims(), ElementsAre(1, 2));
}

TEST_F(Standby, ThatDoesNotFitTheRunSaysSoWhileTheHolderLives) {
  const Process holder = hold(kEndless, kSlow);
  const Ended ended = start(supervised({}, kSteps, {"elements=7"}))->wait();
  EXPECT_EQ(ended.exit_code, 78) << ended.err;
  EXPECT_THAT(claims(), ElementsAre(1));
  EXPECT_TRUE(holder->running());
}

TEST_F(Standby, LetsAHolderWithADeadlineHandOverAtOnce) {
  const fs::path notice = folder_.path() / "notice";
  const Process holder = hold(kEndless, kSlow, {{"HOLDFAST_NOTICE_FILE", notice.native()}});
  const Process standby = stand_by(kSteps, kQuick);
  ASSERT_TRUE(holder->wait_until([&] {
    return holder->err().find("this run hands over to it") != std::string::npos;
  })) << holder->err();
  // Later than this test may last.
  write_text(notice, R"({"action": "stop", "in_seconds": 3000})");
  const Ended left = holder->wait();
  EXPECT_EQ(left.exit_code, 75) << left.err;
  const auto word = run_state_from_json(read_text(run() / "attempts" / state_name(1)));
  ASSERT_TRUE(word);
  EXPECT_EQ(word->phase, RunPhase::interrupted);
  EXPECT_THAT(word->reason, HasSubstr("a standby goes on with the run"));
  const Ended ended = standby->wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(last_step(ended.out, "started"), last_step(left.out, "interrupted")) << "no step twice";
  EXPECT_EQ(state_in(ended.last_line()), straight_state(kSteps, kQuick));
}

TEST_F(Standby, IsInTheStatus) {
  const Process holder = hold(kEndless, kSlow);
  const auto status = [&] { return Subprocess({kHoldfast, "status", run()}).wait().out; };
  EXPECT_THAT(status(), Not(HasSubstr("standby")));
  const Process standby = stand_by(kSteps, kQuick);
  const std::string told = status();
  EXPECT_THAT(told, HasSubstr("standby"));
  EXPECT_THAT(told, HasSubstr("at hand, waits for"));
}

TEST_F(Standby, RefusesOptionsThatCannotBe) {
  const auto code_of = [](const Words& options) {
    Words command = {kHoldfast, "supervise"};
    command.insert(command.end(), options.begin(), options.end());
    command.insert(command.end(), {"--", "/bin/true"});
    return start(command)->wait().exit_code;
  };
  EXPECT_EQ(code_of({"--standby"}), 64) << "no directory";
  EXPECT_EQ(code_of({"--takeover-after", "1min", "--directory", run()}), 64) << "no standby";
  EXPECT_EQ(code_of({"--standby", "--takeover-after", "5s", "--directory", run()}), 64) << "too short";
}

// A chain of machines, each of which ends at some moment: the next one goes on, and the last one ends the run.
class Chain : public Standby {
 protected:
  using Next = std::function<Process(std::int64_t steps, const Words& pace)>;

  void play(const Next& next, const std::function<void(const Process&)>& end) {
    std::mt19937 random(42);
    Process holder = hold(kEndless, kSlow);
    for (int turn = 1; turn <= 10; ++turn) {
      const bool last = turn == 10;
      const AttemptNumber before = *claims().rbegin();
      fs::remove(run() / "standby.json");  // of the one before
      Process standby = last ? next(kSteps, kQuick) : next(kEndless, kSlow);
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 100));
      end(holder);
      holder = std::move(standby);
      ASSERT_TRUE(holder->wait_until([&] { return last_step(holder->out(), "started") >= 0; }) || last)
          << holder->err();
      EXPECT_GT(*claims().rbegin(), before);
      ASSERT_LT(last_step(holder->out(), "started"), kSteps) << "the machine is too slow for this test";
    }
    const Ended ended = holder->wait();
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_EQ(state_in(ended.last_line()), straight_state(kSteps, kQuick));
  }
};

TEST_F(Chain, OfTenHandOversEndsInTheSameState) {
  play([&](std::int64_t steps, const Words& pace) { return stand_by(steps, pace); },
       [](const Process& holder) {
         holder->send(SIGTERM);
         EXPECT_EQ(holder->wait().exit_code, 75);
       });
}

TEST_F(Chain, OfTenKillsWithTakeoverEndsInTheSameState) {
  play([&](std::int64_t steps, const Words& pace) { return stand_by_alone(steps, pace); },
       [&](const Process& holder) {
         holder->send(SIGKILL);
         holder->wait();
         const Ended told = takeover();
         EXPECT_EQ(told.exit_code, 0) << told.err;
       });
}

}}  // namespace holdfast::test
