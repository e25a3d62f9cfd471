// `holdfast supervise` over several lives: a machine that goes away, its own time, hooks, stalls.
#include <gmock/gmock.h>

#include <csignal>

#include "cli/supervised.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

TEST_F(Supervise, AMachineThatGoesAwayDoesNotTrainAgain) {
  if (boot_id().empty()) GTEST_SKIP() << "this machine has no boot id";
  EXPECT_EQ(lives_after(interrupted_here(), notice(9min)), 1U);
}

TEST_F(Supervise, AMachineThatStaysDoes) {
  if (boot_id().empty()) GTEST_SKIP() << "this machine has no boot id";
  const auto fresh = [&] { fs::remove_all(directory()), fs::remove(folder_.path() / "lives"); };
  EXPECT_EQ(lives_after(interrupted_here(), ""), 2U) << "no notice";
  fresh();
  EXPECT_EQ(
      lives_after(interrupted_here(), notice(9min, "withdrawn") + notice(100ms, "deadline", "ec2", 1000)), 2U)
      << "long over";
  fresh();
  EXPECT_EQ(lives_after(interrupted_here(), notice(9min) + notice(0ms, "withdrawn")), 2U) << "withdrawn";
  fresh();
  EXPECT_EQ(lives_after(interrupted_here(), notice(9min) + notice(0ms, "withdrawn", "file")), 1U)
      << "withdrawn by another source";
  fresh();
  EXPECT_EQ(lives_after(interrupted_here(), notice(9min, "stop", "signal")), 2U) << "a signal's grace";
  fresh();
  EXPECT_EQ(lives_after(interrupted_here(), notice(9min, "deadline", "deadline")), 2U)
      << "its own time limit";
  fresh();
  EXPECT_EQ(lives_after(interrupted_here(), notice(1h)), 2U) << "there is time to train";
  fresh();
  RunState elsewhere = interrupted_here();
  elsewhere.boot_id = "another";
  EXPECT_EQ(lives_after(elsewhere, notice(9min)), 2U) << "another machine, or another start of it";
}

TEST_F(Supervise, AMachineThatLivesOnTrainsAgainAfterTheDeadline) {
  if (boot_id().empty()) GTEST_SKIP() << "this machine has no boot id";
  say(interrupted_here());
  const std::int64_t now = now_ms();
  const std::int64_t deadline = now + 300;
  write_ledger(notice(300ms, "deadline", "ec2", now));
  const Ended ended =
      run({"--directory", directory().string(), "--first-delay", "1ms", "--after-deadline", "200ms"},
          "date +%s%N >>times; [ $(wc -l <lives) -lt 2 ] || exit 76; exit 75");
  EXPECT_EQ(ended.exit_code, 76) << ended.err;
  ASSERT_EQ(lives(), 2U);
  EXPECT_GE(std::stoll(noted("times").back()) / 1'000'000, deadline + 190) << ended.err;
}

// What `--max-wall` of the trainer counts from.
TEST_F(Supervise, EveryLifeIsToldWhenTheFirstBegan) {
  Subprocess process(
      command({"--first-delay", "1100ms"},
              script("echo $HOLDFAST_SUPERVISED_SINCE >>since; [ $(wc -l <lives) -lt 2 ] || exit "
                     "76; exit 75")),
      {{"HOLDFAST_SUPERVISED_SINCE", "4711"}});  // of a supervisor that has to do with another run
  const std::int64_t latest = now_ms() / 1000;
  EXPECT_EQ(process.wait().exit_code, 76);
  const Words since = noted("since");
  ASSERT_THAT(since, SizeIs(2));
  EXPECT_EQ(since[0], since[1]);
  EXPECT_NEAR(static_cast<double>(std::stoll(since[0])), static_cast<double>(latest), 60);
}

// Where its trainer keeps compiled kernels: beside the run.
TEST_F(Supervise, TellsTheFolderOfKernels) {
  const Ended ended =
      Subprocess(command(in_directory(), script("echo $HOLDFAST_KERNEL_CACHE >kernels; exit 76")),
                 {{"HOLDFAST_KERNEL_CACHE", "/of/another/run"}})
          .wait();
  EXPECT_EQ(ended.exit_code, 76) << ended.err;
  EXPECT_EQ(noted("kernels"), Words{(directory() / kKernelsDirectory).native()});
  EXPECT_FALSE(fs::exists(directory())) << "the trainer makes it";
}

class OwnTime : public Supervise {
 protected:
  // Of a command whose first life says this and ends with 75, and whose second would end with 76.
  Ended end(const std::string& ledger, const std::string& phase = "interrupted") const {
    for (const std::string file : {"run", "lives", "hook"}) fs::remove_all(folder_.path() / file);
    fs::create_directories(directory());
    write_text(directory() / ledger_name(1), ledger);
    const std::string hook = "echo $HOLDFAST_REASON >'" + (folder_.path() / "hook").string() + "'";
    return run(in_directory({"--on-give-up", hook}),
               "n=$(wc -l <lives); [ $n -lt 2 ] || exit 76; " + attempt(phase, "7") + "exit 75");
  }
  static std::string announced() { return notice(9min, "deadline", "deadline"); }
};

TEST_F(OwnTime, WhenItIsOverNothingStartsAgain) {
  const std::string told_to_stop = announced() + notice(0ms, "stop", "deadline", 1000);
  for (const std::string& ledger : {announced(), told_to_stop}) {
    const Ended ended = end(ledger);
    EXPECT_EQ(ended.exit_code, 75) << ended.err;
    EXPECT_EQ(lives(), 1U);
    EXPECT_THAT(ended.err, HasSubstr("the time that the run may take (--max-wall, the job's) is over"));
    EXPECT_THAT(noted("hook"), ElementsAre(HasSubstr("is over"))) << "nobody trains here any longer";
  }
}

TEST_F(OwnTime, WhoEndsForAnotherReasonHasTheRestOfIt) {
  EXPECT_EQ(end(announced(), "running").exit_code, 76) << "a crash";
  EXPECT_EQ(end(announced() + notice(25s, "stop", "signal")).exit_code, 76);
  EXPECT_EQ(end(announced() + notice(0ms, "withdrawn", "deadline")).exit_code, 76);
  EXPECT_EQ(end(notice(9min, "deadline", "deadline", now_ms() - 3'600'000)).exit_code, 76)
      << "a job that was given more time";
}

TEST_F(OwnTime, WhoLeavesForAnEarlierEndOfItsMachineHasTheRestOfIt) {
  EXPECT_EQ(end(announced() + notice(2min)).exit_code, 76);
  EXPECT_EQ(end(announced() + notice(2min) + notice(0ms, "withdrawn")).exit_code, 75) << "taken back";
  EXPECT_EQ(end(announced() + notice(10min)).exit_code, 75) << "later than its own";
  EXPECT_EQ(end(notice(1min, "deadline", "ec2", now_ms() - 3'600'000) + announced()).exit_code, 75)
      << "outlived";
}

class OnComplete : public Supervise {
 protected:
  // Of one life of this script.
  Ended end(const std::string& text, const std::string& hook = "echo cancelled >>hook") {
    return run({"--directory", directory().string(), "--max-restarts", "0", "--first-delay", "1ms",
                "--hook-timeout", "3s", "--on-complete", "cd '" + folder_.path().string() + "'; " + hook},
               text);
  }
};

TEST_F(OnComplete, RunsWhenCodeAndStateSaySo) {
  claim(1);
  const Ended ended = end("n=2; " + attempt("complete", "100") + "exit 0");
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(noted("hook"), ElementsAre("cancelled"));
  EXPECT_THAT(ended.err, HasSubstr("complete at step 100"));
}

TEST_F(OnComplete, RunsAfterALauncherThatTakesTheEnvironmentAway) {
  const Ended ended = end("n=1; " + attempt("complete", "100", "") + "exit 0");
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_TRUE(there("hook"));
}

// A mistyped directory: the command may train elsewhere, or not at all.
TEST_F(OnComplete, AnAttemptFromBeforeDoesNotCount) {
  say({.attempt = 5, .phase = RunPhase::complete, .step = 100, .durable_step = 100});
  const Ended ended = end("exit 0");
  EXPECT_EQ(ended.exit_code, 70) << ended.err;
  EXPECT_THAT(ended.err,
              HasSubstr("the command began no attempt in the run directory; the newest is attempt 5"));
  EXPECT_FALSE(there("hook"));
}

TEST_F(OnComplete, ACompleteRunThatIsStartedAgainIsComplete) {
  say({.attempt = 5, .phase = RunPhase::complete, .step = 100, .durable_step = 100});
  EXPECT_EQ(end("n=6; " + attempt("complete", "100") + "exit 0").exit_code, 0);
  EXPECT_TRUE(there("hook"));
}

TEST_F(OnComplete, AnotherSupervisorsAttemptDoesNotCount) {
  EXPECT_EQ(end("n=6; " + attempt("complete", "100", "another/1/") + "exit 0").exit_code, 70);
  EXPECT_FALSE(there("hook"));
}

TEST_F(OnComplete, NeitherAloneIsEnough) {
  for (const int code : {75, 74, 1, 78}) {
    fs::remove_all(directory());
    EXPECT_EQ(end("n=1; " + attempt("complete", "1") + "exit " + std::to_string(code)).exit_code, code);
  }
  Ended ended = end("n=2; " + attempt("interrupted", "1") + "exit 0");
  EXPECT_EQ(ended.exit_code, 75);
  EXPECT_THAT(ended.err, HasSubstr("attempt 2 says 'interrupted', not 'complete'"));
  ended = end("n=3; " + attempt("running", "1") + "exit 0");
  EXPECT_EQ(ended.exit_code, 70);
  ended = end(": >run/attempts/4; exit 0");  // and has not said anything
  EXPECT_EQ(ended.exit_code, 70);
  EXPECT_THAT(ended.err, HasSubstr("attempt 4 has written nothing"));
  fs::remove_all(directory());
  EXPECT_EQ(end("exit 0").exit_code, 70);
  fs::create_directories(directory());
  EXPECT_EQ(end("exit 0").exit_code, 70);
  EXPECT_FALSE(there("hook"));
}

TEST_F(OnComplete, AZombiesCopyIsNotBelieved) {
  EXPECT_EQ(end("n=5; " + attempt("running", "1") +
                "echo '{\"attempt\": 4, \"phase\": \"complete\"}' >run/RUN_STATE.json; exit 0")
                .exit_code,
            70);
  EXPECT_FALSE(there("hook"));
}

TEST_F(OnComplete, AHookThatFailsIsSaid) {
  const Ended ended = end("n=1; " + attempt("complete", "1") + "exit 0", "exit 3");
  EXPECT_EQ(ended.exit_code, 70);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("--on-complete: exit 3; not tried again"),
                               HasSubstr("the run itself is complete")));
}

TEST_F(OnComplete, AHookIsTriedUntilItSucceeds) {
  EXPECT_EQ(end("n=1; " + attempt("complete", "1") + "exit 0", "echo try >>hook; [ $(wc -l <hook) -ge 3 ]")
                .exit_code,
            0);
  EXPECT_THAT(noted("hook"), SizeIs(3));
}

TEST_F(OnComplete, AHookThatHangsIsEndedInTime) {
  const Ended ended = end("n=1; " + attempt("complete", "1") + "exit 0", "echo $$ >hook; " + stay());
  EXPECT_EQ(ended.exit_code, 70);
  EXPECT_THAT(ended.err, HasSubstr("did not end within"));
}

class OnGiveUp : public Supervise {
 protected:
  // What the hook is told.
  std::map<std::string, std::string> told(const Words& options, const std::string& text) {
    fs::remove(folder_.path() / "hook");
    Words all =
        in_directory({"--on-give-up", "cd '" + folder_.path().string() + "'; env | grep ^HOLDFAST_ >hook"});
    all.insert(all.end(), options.begin(), options.end());
    code_ = run(all, text).exit_code;
    std::map<std::string, std::string> variables;
    for (const std::string& line : noted("hook")) {
      variables[line.substr(0, line.find('='))] = line.substr(line.find('=') + 1);
    }
    return variables;
  }
  int code_ = -1;
};

TEST_F(OnGiveUp, RunsForEveryEndWithoutCompletion) {
  for (const int code : {64, 74, 76, 78, 130}) {
    fs::remove_all(directory());
    const auto variables =
        told({"--retry-volume", "0s"}, "n=1; " + attempt("failed", "7") + "exit " + std::to_string(code));
    EXPECT_EQ(code_, code);
    EXPECT_EQ(variables.at("HOLDFAST_HOOK"), "on-give-up");
    EXPECT_EQ(variables.at("HOLDFAST_RUN_DIRECTORY"), directory().string());
    EXPECT_EQ(variables.at("HOLDFAST_EXIT_CODE"), std::to_string(code));
    EXPECT_EQ(variables.at("HOLDFAST_STEP"), "7");
    EXPECT_THAT(variables.at("HOLDFAST_REASON"), HasSubstr("not started again"));
    EXPECT_EQ(variables.at("HOLDFAST_DEADLINE"), "");
  }
  fs::remove_all(directory());
  EXPECT_EQ(told({}, "exit 0").at("HOLDFAST_EXIT_CODE"), "70") << "0 of a command that trains elsewhere";
  EXPECT_THAT(told({"--max-restarts", "1"}, "exit 75").at("HOLDFAST_REASON"), HasSubstr("no progress"));
  EXPECT_EQ(code_, 75);
}

TEST_F(OnGiveUp, DoesNotRunForCompletionOrAStop) {
  EXPECT_THAT(told({}, "n=1; " + attempt("complete", "7") + "exit 0"), SizeIs(0));
  EXPECT_EQ(code_, 0);
  EXPECT_THAT(told({}, "trap 'exit 75' TERM; kill -TERM $PPID; " + stay()), SizeIs(0));
  EXPECT_EQ(code_, 75);
}

using StallTimeout = Supervise;

TEST_F(StallTimeout, TwiceInARowIsTheEnd) {
  const Ended ended = run(in_directory({"--stall-timeout", "20s"}), standing_still("5") + stay());
  EXPECT_EQ(ended.exit_code, 70) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("step 1 has stood still for 40"));
  EXPECT_EQ(lives(), 2U);
}

TEST_F(StallTimeout, IsStartedAgainAndMayGoOn) {
  const Ended ended = run(in_directory({"--stall-timeout", "20s"}),
                          "n=$(wc -l <lives); [ $n -lt 2 ] || { " + attempt("complete", "9") + "exit 0; }; " +
                              standing_still("5") + stay());
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(lives(), 2U);
}

TEST_F(StallTimeout, WhatDoesNotLeaveIsKilled) {
  Words options = command(in_directory({"--stall-timeout", "20s", "--max-restarts", "0"}),
                          script(standing_still("5") + "trap '' TERM; " + stay()));
  const Ended ended = Subprocess(options, {{"HOLDFAST_TERM_GRACE", "1s"}}).wait();
  EXPECT_EQ(ended.exit_code, 128 + SIGKILL) << ended.err;
}

TEST_F(StallTimeout, EvaluationsAndALongerLimitAreWaitedFor) {
  for (const auto& [limit, more] :
       {std::pair{"20s", ",\\\"phase\\\":\\\"evaluation\\\""}, {"10min", ""}, {"0s", ""}}) {
    for (const std::string file : {"run", "lives"}) fs::remove_all(folder_.path() / file);
    EXPECT_EQ(run(in_directory({"--stall-timeout", limit}), standing_still("5", more) + "sleep 7; exit 76")
                  .exit_code,
              76);
  }
}

}}  // namespace holdfast::test
