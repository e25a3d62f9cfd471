// `holdfast supervise`: which endings of its command are final, and which are started again.
#include <gmock/gmock.h>
#include <unistd.h>

#include <csignal>

#include "cli/supervised.h"
#include "support/refused_call.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

TEST_F(Supervise, HelpHasAnExample) {
  const Ended ended = Subprocess({HOLDFAST_BIN_DIR "/holdfast", "supervise", "--help"}).wait();
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("Example:\n  holdfast supervise "), HasSubstr("Exit code:")));
}

// A training may take all the threads that its limits allow.
TEST_F(Supervise, WithoutAThreadForTheDirectoryTheCommandLives) {
  const Words words = command(in_directory({"--max-restarts", "1", "--stall-timeout", "1s"}),
                              script("trap 'echo TERM >>heard' TERM; sleep 1; echo lived >>heard; exit 75"));
  Subprocess process(words, {}, [] {
    if (!refuse(RefusedCall::threads)) _exit(77);
  });
  const Ended ended = process.wait();
  if (ended.exit_code == 77) GTEST_SKIP() << "no filters of calls here";
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_THAT(noted("heard"), ElementsAre("lived", "lived"));
  EXPECT_THAT(ended.err, HasSubstr("no thread"));
}

TEST_F(Supervise, WithoutAProcessForTheCommandItIsTriedAgain) {
  Subprocess process(command({"--max-restarts", "2", "--first-delay", "1ms"}, script("exit 0")), {}, [] {
    if (!refuse(RefusedCall::processes)) _exit(77);
  });
  const Ended ended = process.wait();
  if (ended.exit_code == 77) GTEST_SKIP() << "no filters of calls here";
  EXPECT_EQ(ended.exit_code, 70) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("Resource temporarily unavailable"),
                               HasSubstr("2 restarts in a row brought no progress")));
}

TEST_F(Supervise, MistakesOfUseStartNothing) {
  const auto refused = [&](const Words& options) {
    const Ended ended = run(options, "");
    EXPECT_EQ(ended.exit_code, 64) << ended.err;
    EXPECT_THAT(lines_of(ended.err), SizeIs(1));
    return ended.err;
  };
  EXPECT_THAT(refused({"--on-complete", "true"}), HasSubstr("--directory"));
  EXPECT_THAT(refused({"--first-delay", "5"}), HasSubstr("a time like 30s"));
  EXPECT_THAT(refused({"--stall-timeout", "1min"}), HasSubstr("--directory"));
  // A variable that is not set: the run would go on without the protection.
  for (const std::string option : {"--mirror", "--home-mount", "--directory"}) {
    EXPECT_THAT(refused({option, ""}), AllOf(HasSubstr(option), HasSubstr("is empty"))) << option;
  }
  refused({"--max-restarts", "-1"});
  refused({"--restart-always"});
  for (const Words& nothing : {Words{}, Words{"--"}, Words{"true"}}) {
    Words words = {HOLDFAST_BIN_DIR "/holdfast", "supervise"};
    words.insert(words.end(), nothing.begin(), nothing.end());
    EXPECT_EQ(Subprocess(words).wait().exit_code, 64);
  }
  EXPECT_EQ(lives(), 0U);
}

TEST_F(Supervise, SomeEndingsAreFinalAndSayWhy) {
  const std::map<int, std::string> why = {
      {0, "complete"}, {64, "must change"},        {74, "check the volume"},
      {76, "newer"},   {78, "resume was refused"}, {130, "by hand"},
      {126, "nothing"}};
  for (const auto& [code, text] : why) {
    fs::remove(folder_.path() / "lives");
    const Ended ended = run({"--first-delay", "1ms", "--retry-volume", "0s"}, "exit " + std::to_string(code));
    EXPECT_EQ(ended.exit_code, code);
    EXPECT_EQ(lives(), 1U);
    const Words lines = lines_of(ended.err);
    ASSERT_THAT(lines, SizeIs(2)) << ended.err;  // which process, and why it ended
    EXPECT_THAT(lines.back(), AllOf(HasSubstr("exit " + std::to_string(code)), HasSubstr(text)));
  }
}

TEST_F(Supervise, InterruptionsAndCrashesAreStartedAgain) {
  for (const std::string ending : {"exit 75", "exit 1", "exit 70", "kill -SEGV $$", "kill -KILL $$"}) {
    fs::remove(folder_.path() / "lives");
    const Ended ended = run(kSoon, "[ $(wc -l <lives) -lt 3 ] || exit 0; " + ending);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_EQ(lives(), 3U) << ending;
  }
}

TEST_F(Supervise, AVolumeThatComesLateIsWaitedFor) {
  // Longer than --max-restarts allows for anything else.
  const Ended ended =
      run({"--max-restarts", "1", "--first-delay", "1ms"}, "[ $(wc -l <lives) -lt 4 ] || exit 0; exit 74");
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(lives(), 4U);
}

TEST_F(Supervise, AVolumeThatStaysAwayEndsIt) {
  const Ended ended = run({"--first-delay", "1ms", "--retry-volume", "300ms"}, "exit 74");
  EXPECT_EQ(ended.exit_code, 74);
  EXPECT_GE(lives(), 2U);
  EXPECT_THAT(ended.err, HasSubstr("check the volume"));
}

TEST_F(Supervise, WhatLoopsIsEnded) {
  const Ended ended = run({"--max-restarts", "3", "--first-delay", "1ms"}, "exit 75");
  EXPECT_EQ(ended.exit_code, 75);
  EXPECT_EQ(lives(), 4U);
  EXPECT_THAT(ended.err, HasSubstr("3 restarts in a row brought no progress"));
  fs::remove(folder_.path() / "lives");
  EXPECT_EQ(run({"--max-restarts", "0"}, "exit 75").exit_code, 75);
  EXPECT_EQ(lives(), 1U);
}

TEST_F(Supervise, ProgressIsNoLoop) {
  const std::string more = "n=$(wc -l <lives); " + attempt("interrupted", "$n") + "[ $n -lt 6 ] || { " +
                           attempt("complete", "$n") + "exit 0; }; exit 75";
  const Ended ended = run(in_directory({"--max-restarts", "1"}), more);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(lives(), 6U);
}

// With --resume-from: the steps of the branch are lower than those that were committed before.
TEST_F(Supervise, ARunThatWentBackMakesProgressFromThere) {
  RunState before{.attempt = 1, .phase = RunPhase::interrupted, .step = 100, .durable_step = 100};
  before.boot_id = boot_id();
  say(before);
  const std::string more = "n=$(($(wc -l <lives) + 1)); " + attempt("interrupted", "$n") +
                           "[ $n -lt 8 ] || { " + attempt("complete", "$n") + "exit 0; }; exit 75";
  const Ended ended = run(in_directory({"--max-restarts", "2"}), more);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(lives(), 7U);
}

TEST_F(Supervise, ProgressOfOthersIsNoProgress) {
  // Beside it, somebody else's attempts go forward and end.
  const std::string beside = "k=$(wc -l <lives); n=$((2 * k - 1)); " + attempt("interrupted", "5") +
                             "n=$((2 * k)); " + attempt("interrupted", "$((10 * k))", "another/1/") +
                             "[ $k -lt 9 ] || exit 0; exit 1";
  const Ended ended = run(in_directory({"--max-restarts", "2"}), beside);
  EXPECT_EQ(ended.exit_code, 1) << ended.err;
  EXPECT_EQ(lives(), 3U) << "the first life brought step 5";
}

TEST_F(Supervise, AZeroOfAnInterruptedRunIsStartedAgain) {
  const Ended ended = run(in_directory(), "n=$(wc -l <lives); [ $n -lt 3 ] || { " + attempt("complete", "9") +
                                              "exit 0; }; " + attempt("interrupted", "$n") + "exit 0");
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(lives(), 3U);
  EXPECT_THAT(ended.err, HasSubstr("exit 0, but attempt 1 says 'interrupted', not 'complete'"));
}

TEST_F(Supervise, AZeroOfAFailedRunHasTheRunsOwnCode) {
  const Ended ended = run(in_directory(),
                          "mkdir -p run/attempts; : >run/attempts/1; echo '{\"attempt\": 1, "
                          "\"phase\": \"failed\", \"exit_code\": 78}' "
                          ">run/attempts/1.state.json; exit 0");
  EXPECT_EQ(ended.exit_code, 78) << ended.err;
  EXPECT_EQ(lives(), 1U);
}

// torchrun's code for everything.
TEST_F(Supervise, AOneOfAnAttemptThatRecordedItsEndHasTheRunsOwnCode) {
  const Ended interrupted =
      run(in_directory({"--max-restarts", "0"}), "n=1; " + attempt("interrupted", "3") + "exit 1");
  EXPECT_EQ(interrupted.exit_code, 75) << interrupted.err;
  EXPECT_THAT(interrupted.err, HasSubstr("exit 1, but attempt 1 says 'interrupted'"));
  const Ended refused =
      run(in_directory(),
          "n=2; mkdir -p run/attempts; echo \"{\\\"supervisor\\\": \\\"$HOLDFAST_SUPERVISOR\\\"}\" "
          ">run/attempts/2; echo '{\"attempt\": 2, \"phase\": \"failed\", \"exit_code\": 78}' "
          ">run/attempts/2.state.json; exit 1");
  EXPECT_EQ(refused.exit_code, 78) << refused.err;
  EXPECT_EQ(lives(), 2U);
  const Ended silent = run(in_directory({"--max-restarts", "0"}), "exit 1");
  EXPECT_EQ(silent.exit_code, 1) << "an older attempt says nothing about this life";
}

TEST_F(Supervise, TwoSupervisorsDoNotFight) {
  // As under a launcher that turns 76 into 1.
  const std::string fenced =
      "n=1; mkdir -p run/attempts; while ! (set -C; echo >run/attempts/$n) 2>/dev/null; do n=$((n+1)); "
      "done; trap 'exit 75' TERM; " +
      attempt("running", "$n") + "next=$((n+1)); " + until("[ -e run/attempts/$next.state.json ]") +
      "; exit 1";
  Subprocess first(command(in_directory(), script(fenced)));
  ASSERT_TRUE(first.wait_until([&] { return there("run/attempts/1.state.json"); }));
  Subprocess second(command(in_directory(), script(fenced)));
  const Ended ended = first.wait();
  EXPECT_EQ(ended.exit_code, 76) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("attempt 2 has taken the run over"));
  EXPECT_TRUE(second.running());
  second.send(SIGTERM);
  EXPECT_EQ(second.wait().exit_code, 75);
  EXPECT_EQ(lives(), 2U);
}

TEST_F(Supervise, SilenceIsNoStepBack) {
  // Every other life claims the run and says nothing; the others have nothing new to say.
  const std::string silent =
      "n=$(wc -l <lives); mkdir -p run/attempts; : >run/attempts/$n; [ $((n % 2)) = 0 ] || "
      "echo '{\"attempt\": '$n', \"phase\": \"interrupted\", \"durable_step\": 5}' "
      ">run/attempts/$n.state.json; [ $n -lt 9 ] || exit 0; exit 75";
  const Ended ended =
      run({"--max-restarts", "2", "--first-delay", "1ms", "--directory", directory().string()}, silent);
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_EQ(lives(), 3U);
}

// Nothing continues the run by itself then, as where there is no Slurm.
TEST_F(Supervise, AFailedRequeueRunsOnGiveUp) {
  const fs::path tools = folder_.path() / "tools";
  fs::create_directories(tools);
  write_text(tools / "scontrol",
             "#!/bin/sh\necho \"$*\" >>'" + (folder_.path() / "asked").string() + "'\nexit 1\n");
  fs::permissions(tools / "scontrol", fs::perms::owner_all);
  Words options = {"--requeue-slurm", "--on-give-up",
                   "cd '" + folder_.path().string() + "'; env | grep ^HOLDFAST_ >hook"};
  Subprocess process(command(options, script("trap 'exit 75' TERM; >ready; " + stay())),
                     {{"SLURM_JOB_ID", "7"}, {"PATH", tools.string() + ":" + ::getenv("PATH")}});
  ASSERT_TRUE(process.wait_until([&] { return there("ready"); }));
  process.send(SIGTERM);
  ASSERT_TRUE(process.wait_until([&] { return !noted("asked").empty(); }));
  process.send(SIGTERM);  // no further tries
  const Ended ended = process.wait();
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_THAT(noted("asked"), ElementsAre("show job --oneliner 7"));
  EXPECT_THAT(noted("hook"), Contains("HOLDFAST_HOOK=on-give-up"));
  EXPECT_THAT(noted("hook"), Contains("HOLDFAST_REASON=Slurm job 7 could not be requeued"));
}

// While a job ends, COMPLETING hides why. Slurm's own words for the rest: scontrol.
TEST_F(Supervise, APreemptedJobIsRequeuedUnlessSlurmHasDoneItAndACancelledOneIsNot) {
  const fs::path tools = folder_.path() / "tools";
  fs::create_directories(tools);
  const auto asked_about = [&](const std::string& state) {
    write_text(tools / "scontrol", "#!/bin/sh\necho $1 >>'" + (folder_.path() / "asked").string() +
                                       "'\n[ $1 = requeue ] || echo 'JobId=7 JobName=train " + state +
                                       " SuspendTime=None'\n");
    fs::permissions(tools / "scontrol", fs::perms::owner_all);
    for (const char* const left : {"ready", "asked"}) fs::remove(folder_.path() / left);
    Subprocess process(command({"--requeue-slurm"}, script("trap 'exit 75' TERM; >ready; " + stay())),
                       {{"SLURM_JOB_ID", "7"}, {"PATH", tools.string() + ":" + ::getenv("PATH")}});
    EXPECT_TRUE(process.wait_until([&] { return there("ready"); }));
    process.send(SIGTERM);
    EXPECT_EQ(process.wait().exit_code, 75);
    return noted("asked");
  };
  const std::string eligible = " PreemptEligibleTime=2026-11-29T09:00:00 PreemptTime=";
  const std::string preempted = eligible + "2026-11-29T10:00:00";
  for (const std::string& state : {"COMPLETING Reason=None" + preempted, "PREEMPTED Reason=None" + preempted,
                                   "COMPLETING Reason=TimeLimit" + eligible + "None"}) {
    EXPECT_THAT(asked_about("JobState=" + state), ElementsAre("show", "requeue")) << state;
  }
  for (const std::string& state :
       {"COMPLETING Reason=None" + eligible + "None", std::string("COMPLETING Reason=BeginTime"),
        "PENDING Reason=BeginTime" + preempted}) {
    EXPECT_THAT(asked_about("JobState=" + state), ElementsAre("show")) << state;
  }
}

TEST_F(Supervise, ASignalIsAHundredAndTwentyEightAndItsNumber) {
  EXPECT_EQ(run({"--max-restarts", "0"}, "kill -SEGV $$").exit_code, 128 + SIGSEGV);
  EXPECT_EQ(run({"--max-restarts", "0"}, "kill -KILL $$").exit_code, 128 + SIGKILL);
}

TEST_F(Supervise, ACommandThatIsNotThereIsSaid) {
  const Ended ended = Subprocess(command({}, {"./there-is-none"})).wait();
  EXPECT_EQ(ended.exit_code, 127);
  EXPECT_THAT(ended.err, HasSubstr("cannot execute './there-is-none': No such file"));
}

TEST_F(Supervise, ArgumentsArriveUntouched) {
  const Words odd = {"[1,2]", "", "--", "a b", "--help", "%{x}", "{}"};
  Words child = {"/usr/bin/printf", "<%s>\n"};
  child.insert(child.end(), odd.begin(), odd.end());
  const Ended ended = Subprocess(command({}, child)).wait();
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  Words expected;
  for (const std::string& word : odd) expected.push_back("<" + word + ">");
  EXPECT_EQ(lines_of(ended.out), expected);
}

}}  // namespace holdfast::test
