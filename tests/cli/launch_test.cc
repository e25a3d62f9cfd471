// `holdfast launch` with small shell scripts in the place of trainers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <thread>

#include "support/refused_call.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::UnorderedElementsAre;

using Words = std::vector<std::string>;
using Settings = std::map<std::string, std::string>;

// In a script: for two minutes at most, so that nothing stays behind when a test fails.
std::string until(const std::string& condition) {
  return "n=0; until " + condition + " || [ $n -ge 12000 ]; do sleep 0.01; n=$((n+1)); done; ";
}
const std::string kStay = until("false");

class Launch : public testing::Test {
 protected:
  Words command(Words options, const std::string& text) const {
    options.insert(options.begin(), {HOLDFAST_BIN_DIR "/holdfast", "launch"});
    for (const std::string& word :
         Words{"--", "/bin/sh", "-c", "cd '" + folder_.path().string() + "'; " + text}) {
      options.push_back(word);
    }
    return options;
  }
  Ended run(const Words& options, const std::string& text, const Settings& environment = {}) const {
    return Subprocess(command(options, text), environment).wait();
  }
  Words noted(const std::string& file) const { return lines_of(read_text(folder_.path() / file)); }
  bool there(const std::string& file) const { return fs::exists(folder_.path() / file); }
  static bool wait_for(const std::function<bool()>& condition) {
    const auto limit = std::chrono::steady_clock::now() + 60s;
    while (!condition() && std::chrono::steady_clock::now() < limit) usleep(2000);
    return condition();
  }

  TemporaryFolder folder_;
};

TEST_F(Launch, EveryProcessLearnsItsPlace) {
  const Ended ended =
      run({"--nproc", "3"},
          "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR; echo $MASTER_PORT >>ports; "
          "echo $HOLDFAST_LAUNCH_JOB >>jobs; echo ${HOLDFAST_LAUNCH_SOCKET:-none} >>sockets");
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(lines_of(ended.out), UnorderedElementsAre("[0] 0 0 3 3 127.0.0.1", "[1] 1 1 3 3 127.0.0.1",
                                                        "[2] 2 2 3 3 127.0.0.1"));
  ASSERT_THAT(noted("ports"), SizeIs(3));
  EXPECT_THAT(noted("ports"), Each(noted("ports").front()));
  EXPECT_THAT(noted("jobs"), AllOf(SizeIs(3), Each(noted("jobs").front()), Each(Not(IsEmpty()))));
  const Words sockets = noted("sockets");
  EXPECT_EQ(std::count(sockets.begin(), sockets.end(), "none"), 2) << "rank 0 alone takes it over";
}

// Another one each time; several hosts must have the user's in common.
// Until rank 0 has it: then rank 0 can listen on it, and no one else.
TEST_F(Launch, RankZeroGetsTheListeningSocket) {
  const Ended ended =
      run({"--nproc", "2"}, "[ $RANK = 1 ] || readlink /proc/self/fd/$HOLDFAST_LAUNCH_SOCKET");
  EXPECT_THAT(ended.out, HasSubstr("[0] socket:[")) << ended.err;
}

TEST_F(Launch, SeveralHostsShareOneWorld) {
  const std::string text =
      "echo $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT ${HOLDFAST_LAUNCH_SOCKET:-none}";
  const Ended by_option =
      run({"--nproc", "2", "--nnodes", "3", "--node-rank", "1", "--master", "gpu1:4000"}, text);
  EXPECT_THAT(lines_of(by_option.out),
              UnorderedElementsAre("[2] 2 0 6 gpu1 4000 none", "[3] 3 1 6 gpu1 4000 none"))
      << by_option.err;
  const Ended by_pod =
      run({"--nproc", "2"}, text,
          {{"RANK", "2"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "run-0"}, {"MASTER_PORT", "4001"}});
  EXPECT_THAT(lines_of(by_pod.out),
              UnorderedElementsAre("[4] 4 0 6 run-0 4001 none", "[5] 5 1 6 run-0 4001 none"))
      << by_pod.err;
}

// For programs that do not take rank 0's socket over: then nobody may listen there before them.
TEST_F(Launch, AMasterAloneIsHeeded) {
  const std::string text =
      "echo $RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT ${HOLDFAST_LAUNCH_SOCKET:-none} "
      "${HOLDFAST_LAUNCH_JOB:+job}";
  const Ended here = run({"--nproc", "1", "--master", "gpu1:4000"}, text);
  EXPECT_EQ(here.out, "[0] 0 1 gpu1 4000 none job\n") << here.err;
  const Ended in_pod =
      run({"--nproc", "1", "--master", "gpu1:4000"}, text,
          {{"RANK", "2"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "run-0"}, {"MASTER_PORT", "4001"}});
  EXPECT_EQ(in_pod.out, "[2] 2 3 gpu1 4000 none\n") << in_pod.err;
}

TEST_F(Launch, WrongOptionsAreNamed) {
  const auto refusal = [&](const Words& options, const Settings& environment = {}) {
    const Ended ended = run(options, ": >started", environment);
    EXPECT_EQ(ended.exit_code, 64) << ended.err;
    return ended.err;
  };
  EXPECT_THAT(refusal({}), HasSubstr("--nproc"));
  EXPECT_THAT(refusal({"--nproc", "0"}), HasSubstr("--nproc"));
  EXPECT_THAT(refusal({"--nproc", "2", "--nnodes", "2"}), HasSubstr("--master"));
  EXPECT_THAT(refusal({"--nproc", "2", "--nnodes", "2", "--node-rank", "2", "--master", "a:1"}),
              HasSubstr("--node-rank 2"));
  for (const std::string bad : {"gpu1", "gpu1:", ":29500", "gpu1:0", "gpu1:65536", "gpu1:x"}) {
    EXPECT_THAT(refusal({"--nproc", "1", "--master", bad}), HasSubstr("--master '" + bad + "'"));
  }
  EXPECT_THAT(refusal({"--nproc", "1", "--node-rank", "0"}), HasSubstr("--nnodes"));
  EXPECT_THAT(refusal({"--nproc", "1"}, {{"LOCAL_RANK", "1"}}), HasSubstr("LOCAL_RANK=1"));
  EXPECT_FALSE(there("started"));
}

TEST_F(Launch, LinesAreWholeAndCarryTheirRank) {
  const Ended ended = run({"--nproc", "2"},
                          "i=0; while [ $i -lt 300 ]; do echo \"line $i of $RANK\"; echo \"error $i of "
                          "$RANK\" >&2; i=$((i+1)); done; "
                          "printf 'without an end'");
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Words out = lines_of(ended.out);
  EXPECT_THAT(out, SizeIs(602));
  for (const std::string rank : {"0", "1"}) {
    int next = 0;
    for (const std::string& line : out) {
      if (line.starts_with("[" + rank + "] line")) {
        EXPECT_EQ(line, "[" + rank + "] line " + std::to_string(next++) + " of " + rank);
      }
    }
    EXPECT_EQ(next, 300);
    EXPECT_THAT(out, Contains("[" + rank + "] without an end"));
    EXPECT_THAT(ended.err, HasSubstr("[" + rank + "] error 299 of " + rank + "\n"));
  }
}

TEST_F(Launch, LongLinesAreCut) {
  const Ended ended = run({"--nproc", "1"}, "head -c 200000 /dev/zero | tr '\\0' x; echo; echo end");
  const Words out = lines_of(ended.out);
  ASSERT_THAT(out, SizeIs(5)) << ended.err;
  std::size_t letters = 0;
  for (const std::string& line : out)
    letters += static_cast<std::size_t>(std::count(line.begin(), line.end(), 'x'));
  EXPECT_EQ(letters, 200'000U);
  EXPECT_EQ(out.back(), "[0] end");
}

TEST_F(Launch, ATrainingOutlivesWhoReadsItsLog) {
  std::string line;
  for (const std::string& word :
       command({"--nproc", "1"}, "i=0; while [ $i -lt 3000 ]; do echo line; i=$((i+1)); done; : >over")) {
    line += " '";
    for (const char letter : word) line += letter == '\'' ? "'\\''" : std::string(1, letter);
    line += "'";
  }
  const Ended ended = Subprocess({"/bin/bash", "-c", line + " | head -n 1; exit ${PIPESTATUS[0]}"}).wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.out, "[0] line\n");
  EXPECT_TRUE(there("over"));
}

TEST_F(Launch, SeventyFiveOnlyIfEveryRankSaysSo) {
  // Whoever is asked to end because another has ended must not die of it: this is about codes.
  const auto code_of = [&](const std::string& two, const std::string& others) {
    for (const char* const rank : {"up0", "up1", "up2"}) fs::remove(folder_.path() / rank);
    return run({"--nproc", "3"}, "trap '' TERM; : >up$RANK; " +
                                     until("[ -e up0 ] && [ -e up1 ] && [ -e up2 ]") +
                                     "[ $RANK = 2 ] && exit " + two + "; exit " + others);
  };
  EXPECT_EQ(code_of("0", "0").exit_code, 0);
  EXPECT_EQ(code_of("75", "75").exit_code, 75);
  EXPECT_EQ(code_of("78", "75").exit_code, 78);
  EXPECT_EQ(code_of("1", "0").exit_code, 1);
  const Ended mixed = code_of("75", "0");
  EXPECT_EQ(mixed.exit_code, 70);
  EXPECT_THAT(mixed.err, HasSubstr("1 of 3 ranks are interrupted"));
}

// Between its last commit and its end a program may not listen to signals any more.
TEST_F(Launch, RanksThatLeaveTogetherAreNotHurried) {
  const Ended ended = run({"--nproc", "2"}, ": >up$RANK; " + until("[ -e up0 ] && [ -e up1 ]") +
                                                "[ $RANK = 1 ] && { sleep 0.5; exit 75; }; exit 75");
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
}

TEST_F(Launch, WhoStaysBehindAnInterruptedRankIsAsked) {
  const Ended ended = run({"--nproc", "2"}, "[ $RANK = 1 ] && { " + until("[ -e ready ]") +
                                                "exit 75; }; trap 'echo TERM >>heard; exit 75' TERM; "
                                                ": >ready; " +
                                                kStay);
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_THAT(noted("heard"), SizeIs(1));
}

TEST_F(Launch, AFailureEndsTheOthers) {
  const Ended ended =
      run({"--nproc", "3"}, "[ $RANK = 1 ] && { " + until("[ -e ready0 ] && [ -e ready2 ]") +
                                "exit 3; }; trap 'echo TERM >>heard; exit 75' TERM; : >ready$RANK; " + kStay);
  EXPECT_EQ(ended.exit_code, 3) << ended.err;
  EXPECT_THAT(noted("heard"), SizeIs(2));
  EXPECT_THAT(ended.err, AllOf(HasSubstr("rank 1 failed (exit 3)"), HasSubstr("rank 1: exit 3; exit 3")));
}

TEST_F(Launch, WhoDoesNotListenIsKilled) {
  const Ended ended = run({"--nproc", "2"},
                          "[ $RANK = 1 ] && { " + until("[ -e ready ]") +
                              "kill -SEGV $$; }; trap '' TERM; echo $$ >pid; : >ready; " + kStay,
                          {{"HOLDFAST_TERM_GRACE", "3s"}});
  EXPECT_EQ(ended.exit_code, 128 + SIGSEGV) << ended.err;
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("rank 1 failed (killed by SIGSEGV)"), HasSubstr("rank 0 did not end: killed")));
  const Words pid = noted("pid");
  ASSERT_THAT(pid, SizeIs(1));
  EXPECT_NE(kill(std::stoi(pid.front()), 0), 0);
}

TEST_F(Launch, WhatARankLeavesBehindEnds) {
  const Ended ended = run({"--nproc", "1"}, "sh -c 'trap \"echo late >>heard; exit 0\" TERM; : >ready; " +
                                                kStay + "' & " + until("[ -e ready ]") + "exit 0");
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(noted("heard"), UnorderedElementsAre("late"));
}

// A shell without `exec` ends by SIGTERM at once, and its trainer commits longer than leftovers are waited for.
TEST_F(Launch, AfterAStopWhatARankLeavesBehindHasItsGrace) {
  Subprocess process(command({"--nproc", "1"},
                             "(trap 'sleep 7; echo committed >>heard; exit 75' TERM; "
                             ": >ready; " +
                                 kStay + "); true"));
  ASSERT_TRUE(process.wait_until([&] { return there("ready"); }));
  process.send(SIGTERM);
  process.wait();
  EXPECT_THAT(noted("heard"), Contains("committed"));
}

TEST_F(Launch, SignalsReachEveryRankOnce) {
  for (const int signal : {SIGTERM, SIGINT}) {
    fs::remove_all(folder_.path() / "heard");
    for (const char* const rank : {"ready0", "ready1"}) fs::remove(folder_.path() / rank);
    Subprocess process(command({"--nproc", "2"},
                               "trap 'echo USR1 >>heard' USR1; trap 'echo TERM >>heard; exit 75' TERM; trap "
                               "'echo INT >>heard; exit 75' INT; "
                               ": >ready$RANK; " +
                                   kStay));
    ASSERT_TRUE(process.wait_until([&] { return there("ready0") && there("ready1"); }));
    process.send(SIGUSR1);
    ASSERT_TRUE(process.wait_until([&] { return noted("heard").size() == 2; }));
    process.send(signal);
    const Ended ended = process.wait();
    EXPECT_EQ(ended.exit_code, 75) << ended.err;
    const std::string name = signal == SIGTERM ? "TERM" : "INT";
    EXPECT_THAT(noted("heard"), UnorderedElementsAre("USR1", "USR1", name, name));
  }
}

// A machine that ends all of a service tells its supervisor, too, which passes it on.
TEST_F(Launch, ASignalThatWasPassedOnIsNoSecondCtrlC) {
  Subprocess process(command({"--nproc", "2"}, "trap 'sleep 1; exit 75' INT; : >ready$RANK; " + kStay));
  ASSERT_TRUE(process.wait_until([&] { return there("ready0") && there("ready1"); }));
  const std::string status = "/proc/" + std::to_string(process.pid()) + "/status";
  process.send(SIGINT);
  ASSERT_TRUE(process.wait_until(
      [&] { return read_text(status).find("ShdPnd:\t0000000000000000") != std::string::npos; }));
  process.send(SIGINT);
  const Ended ended = process.wait();
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_THAT(ended.err, Not(HasSubstr("did not end: killed")));
}

TEST_F(Launch, TheSecondCtrlCEndsWhoDoesNotListen) {
  Subprocess process(
      command({"--nproc", "2"}, "trap 'echo INT >>heard' INT; trap '' TERM; : >ready$RANK; " + kStay));
  ASSERT_TRUE(process.wait_until([&] { return there("ready0") && there("ready1"); }));
  process.send(SIGINT);
  ASSERT_TRUE(process.wait_until([&] { return noted("heard").size() == 2; }));
  std::this_thread::sleep_for(300ms);  // a person is no quicker
  process.send(SIGINT);
  const Ended ended = process.wait();
  EXPECT_EQ(ended.exit_code, 128 + SIGKILL) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("did not end: killed"));
}

// A notice that one rank alone has heard: the others are asked to stop, too.
TEST_F(Launch, WhenOneIsInterruptedTheOthersAreAsked) {
  const Ended ended = run({"--nproc", "3"},
                          "[ $RANK = 2 ] && { " + until("[ -e ready0 ] && [ -e ready1 ]") +
                              "exit 75; }; trap 'echo TERM >>heard; exit 75' TERM; : >ready$RANK; " + kStay);
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_THAT(noted("heard"), SizeIs(2));
}

TEST_F(Launch, WhenItDiesTheRanksHearSigterm) {
  Subprocess process(
      command({"--nproc", "2"}, "trap 'echo TERM >>heard; exit 75' TERM; : >ready$RANK; " + kStay));
  ASSERT_TRUE(process.wait_until([&] { return there("ready0") && there("ready1"); }));
  process.send(SIGKILL);
  process.wait();
  EXPECT_TRUE(wait_for([&] { return noted("heard").size() == 2; }));
}

// Also where nobody has reaped it: some process 1 takes its time.
bool has_ended(pid_t process) {
  const std::string status = read_text("/proc/" + std::to_string(process) + "/stat");
  return status.empty() || status.find(") Z") != std::string::npos;
}

// One that hangs in a collective or a driver does not listen.
TEST_F(Launch, WhenItDiesARankThatDoesNotListenIsKilled) {
  Subprocess process(command({"--nproc", "2"}, "trap '' TERM; echo $$ >pid$RANK; : >ready$RANK; " + kStay),
                     {{"HOLDFAST_TERM_GRACE", "1s"}});
  ASSERT_TRUE(process.wait_until([&] { return there("ready0") && there("ready1"); }));
  process.send(SIGKILL);
  process.wait();
  for (const std::string rank : {"0", "1"}) {
    const pid_t pid = std::stoi(noted("pid" + rank).front());
    EXPECT_TRUE(wait_for([&] { return has_ended(pid); })) << "rank " << rank << " is still there";
    kill(pid, SIGKILL);
  }
}

// The launcher's children but for its one rank. Empty: this kernel does not tell a process's children.
std::vector<pid_t> guards_of(const Subprocess& launcher, pid_t rank) {
  const std::string id = std::to_string(launcher.pid());
  std::istringstream children(read_text("/proc/" + id + "/task/" + id + "/children"));
  std::vector<pid_t> all{std::istream_iterator<pid_t>(children), {}};
  std::erase(all, rank);
  return all;
}

// What guards them must not take numbers for ranks that have ended long since.
TEST_F(Launch, WhenItDiesItsGuardEndsWithTheRanksOnAnOldKernel) {
  Subprocess process(command({"--nproc", "1"}, "trap 'exit 75' TERM; echo $$ >pid; : >ready; " + kStay),
                     {{"HOLDFAST_TERM_GRACE", "10min"}}, [] {
                       if (!refuse(RefusedCall::process_descriptors)) _exit(77);
                     });
  if (!process.wait_until([&] { return there("ready"); }) && process.wait().exit_code == 77) {
    GTEST_SKIP() << "no filters of calls here";
  }
  const std::vector<pid_t> all = guards_of(process, std::stoi(noted("pid").front()));
  if (all.empty()) GTEST_SKIP() << "this kernel does not tell a process's children";
  ASSERT_THAT(all, SizeIs(1));
  process.send(SIGKILL);
  process.wait();
  EXPECT_TRUE(wait_for([&] { return has_ended(all.front()); })) << "it waits for the whole grace";
  kill(all.front(), SIGKILL);
}

// By the kernel, for want of memory: the training goes on, and says what it lacks.
TEST_F(Launch, AGuardThatIsKilledEndsNothing) {
  Subprocess process(command({"--nproc", "1"}, "echo $$ >pid; : >ready; " + until("[ -e go ]")));
  ASSERT_TRUE(process.wait_until([&] { return there("ready"); }));
  const std::vector<pid_t> guards = guards_of(process, std::stoi(noted("pid").front()));
  if (guards.empty()) GTEST_SKIP() << "this kernel does not tell a process's children";
  ASSERT_THAT(guards, SizeIs(1));
  kill(guards.front(), SIGKILL);
  EXPECT_TRUE(process.wait_until([&] { return process.err().find("has been killed") != std::string::npos; }));
  write_text(folder_.path() / "go", "");
  const Ended ended = process.wait();
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_EQ(ended.err.find("has been killed"), ended.err.rfind("has been killed")) << ended.err;
}

TEST_F(Launch, WhoHangsAfterACompleteRankIsEnded) {
  const Ended ended =
      run({"--nproc", "2", "--leave-timeout", "1s"},
          "[ $RANK = 1 ] && { " + until("[ -e ready ]") + "exit 0; }; trap '' TERM; : >ready; " + kStay,
          {{"HOLDFAST_TERM_GRACE", "1s"}});
  EXPECT_EQ(ended.exit_code, 128 + SIGKILL) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("rank 0 did not end within 1.0 s of the first rank's end"),
                               HasSubstr("rank 0 did not end: killed")));
}

// Rank 0 of a Holdfast trainer holds its ledger open.
TEST_F(Launch, WhatAHangingRankDoesIsKeptInItsRunDirectory) {
  const auto hangs = [&](const std::string& run_files) {
    return run({"--nproc", "2", "--leave-timeout", "1s"},
               "[ $RANK = 1 ] && { " + until("[ -e ready ]") + "exit 0; }; " + run_files +
                   ": >ready; exec " HOLDFAST_STALLED_PROGRAM " deadlock",
               {{"HOLDFAST_TERM_GRACE", "100ms"}, {"TMPDIR", folder_.path().string()}});
  };
  const fs::path file = folder_.path() / "run/attempts/3.stall.txt";
  Ended ended = hangs("mkdir -p run/attempts; exec 9>run/ledger-a0003.jsonl; ");
  EXPECT_EQ(ended.exit_code, 128 + SIGKILL) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("evidence of the stall is in " + file.string()));
  const std::string text = read_text(file);
  EXPECT_THAT(text, AllOf(HasSubstr("the first rank has ended, and rank 0 has not"), HasSubstr("attempt 3"),
                          HasSubstr("thread "), HasSubstr("stalled: state S"), HasSubstr("in futex(")));
  EXPECT_EQ(text.find("= holdfast launch"), text.rfind("= holdfast launch"))
      << "SIGTERM and SIGKILL are one end";
  fs::remove(folder_.path() / "ready");
  ended = hangs("");
  EXPECT_THAT(ended.err, HasSubstr("stall is in " + folder_.path().string() + "/holdfast-stall-"));
}

TEST_F(Launch, WhoDoesNotHearSigtermIsKilledAfterTheGrace) {
  Subprocess process(command({"--nproc", "2"}, "trap '' TERM; : >ready$RANK; " + kStay),
                     {{"HOLDFAST_TERM_GRACE", "1s"}});
  ASSERT_TRUE(process.wait_until([&] { return there("ready0") && there("ready1"); }));
  process.send(SIGTERM);
  const Ended ended = process.wait(100s);
  EXPECT_EQ(ended.exit_code, 128 + SIGKILL) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("ranks 0, 1 did not end: killed"));
  EXPECT_THAT(ended.err, Not(HasSubstr("stall"))) << "whoever asks for a stop is in a hurry";
}

TEST_F(Launch, WhoIsWaitedForIsSaid) {
  const Ended ended =
      run({"--nproc", "2"}, "[ $RANK = 1 ] && exit 0; " +
                                std::string("n=0; while [ $n -lt 34 ]; do sleep 1; n=$((n+1)); done"));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("waiting for rank 0 to end; SIGTERM in 9m"));
}

TEST_F(Launch, ACommandThatIsNotThereIsSaid) {
  const Ended ended =
      Subprocess({HOLDFAST_BIN_DIR "/holdfast", "launch", "--nproc", "2", "--", "/no/such/trainer"}).wait();
  EXPECT_EQ(ended.exit_code, 127);
  EXPECT_THAT(ended.err, HasSubstr("cannot execute '/no/such/trainer'"));
  EXPECT_EQ(Subprocess({HOLDFAST_BIN_DIR "/holdfast", "launch", "--nproc", "2"}).wait().exit_code, 64);
}

TEST_F(Launch, ThreadsAreSharedUnlessTheUserSays) {
  const Ended ended = run({"--nproc", "2"}, "echo threads=$OMP_NUM_THREADS", {{"OMP_NUM_THREADS", "7"}});
  EXPECT_THAT(lines_of(ended.out), UnorderedElementsAre("[0] threads=7", "[1] threads=7"));
  // Not 1 whatever the machine, as torchrun has it.
  const Ended shared = run({"--nproc", "1"}, "echo threads=$OMP_NUM_THREADS", {{"OMP_NUM_THREADS", ""}});
  EXPECT_THAT(shared.out,
              HasSubstr("threads=" + std::to_string(std::max(1U, std::thread::hardware_concurrency()))))
      << shared.err;
}

// Its fellow was told that the run is complete, and is gone; this host was lost before it could say so.
TEST_F(Launch, AHostThatIsReplacedAfterTheEndStartsNothing) {
  const fs::path run_directory = folder_.path() / "run";
  const Words two_hosts{"--nproc",           "2",
                        "--nnodes",          "2",
                        "--node-rank",       "0",
                        "--master",          "127.0.0.1:29555",
                        "--unless-complete", run_directory.string()};
  const Words one_host{"--nproc", "1", "--unless-complete", run_directory.string()};
  EXPECT_EQ(run(one_host, "touch first").exit_code, 0);
  EXPECT_TRUE(there("first")) << "no run is there yet";
  const auto state = [&](const char* phase) {
    fs::create_directories(run_directory / "attempts");
    const std::string text =
        std::string(R"({"attempt":1,"phase":")") + phase +
        R"(","step":9,"durable_step":9,"checkpoint":"","exit_code":0,"reason":"","time":""})";
    write_text(run_directory / "attempts" / "1", "");
    write_text(run_directory / "attempts" / "1.state.json", text);
    write_text(run_directory / "RUN_STATE.json", text);
  };
  state("running");
  EXPECT_EQ(run(one_host, "touch second").exit_code, 0);
  EXPECT_TRUE(there("second"));
  state("complete");
  const Ended ended = run(two_hosts, "touch third");
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("is complete: nothing is started"));
  EXPECT_FALSE(there("third"));
}

}}  // namespace holdfast::test
