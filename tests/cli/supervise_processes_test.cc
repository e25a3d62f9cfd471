// `holdfast supervise` and processes: signals, what a command leaves behind, other supervisors, process 1.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "cli/supervised.h"
#include "holdfast/base/process/process_identity.h"
#include "support/child_process.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

std::string listens() {
  return "trap 'echo USR1 >>heard' USR1; trap 'echo TERM >>heard; exit 75' TERM; trap 'echo INT >>heard; "
         "exit 75' INT; trap 'echo HUP >>heard; exit 75' HUP; : >ready; " +
         stay();
}

TEST_F(Supervise, SignalsArriveOnceAndNothingStartsAgain) {
  std::signal(SIGHUP, SIG_DFL);  // whoever started the tests may ignore it, and that is handed down
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR2, SIGXCPU}) {
    for (const std::string file : {"lives", "ready", "heard"}) fs::remove(folder_.path() / file);
    Subprocess process(command(kSoon, script(listens())));
    ASSERT_TRUE(process.wait_until([&] { return there("ready"); }));
    process.send(SIGUSR1);
    ASSERT_TRUE(process.wait_until([&] { return !noted("heard").empty(); })) << "USR1";
    process.send(signal);
    const Ended ended = process.wait();
    EXPECT_EQ(ended.exit_code, 75) << ended.err;
    EXPECT_EQ(lives(), 1U);
    EXPECT_THAT(noted("heard"), ElementsAre("USR1", signal == SIGINT ? "INT" : "TERM"));
    EXPECT_THAT(ended.err, HasSubstr("asked to stop"));
  }
}

TEST_F(Supervise, AHangupThatIsIgnoredStaysIgnored) {
  std::signal(SIGHUP, SIG_IGN);  // nohup
  Subprocess process(command(kSoon, script(listens())));
  std::signal(SIGHUP, SIG_DFL);
  ASSERT_TRUE(process.wait_until([&] { return there("ready"); }));
  process.send(SIGHUP);
  process.send(SIGUSR1);
  ASSERT_TRUE(process.wait_until([&] { return !noted("heard").empty(); }));
  process.send(SIGTERM);
  EXPECT_EQ(process.wait().exit_code, 75);
  EXPECT_THAT(noted("heard"), ElementsAre("USR1", "TERM"));
}

TEST_F(Supervise, ACtrlCAtATerminalArrivesOnce) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0) GTEST_SKIP() << "no terminals here: " << std::strerror(errno);
  close(terminal);
  // It does not end at the first: a second one would be noted, too.
  const Words words =
      command(kSoon, script("trap 'echo TERM >>heard; exit 75' TERM; trap 'echo INT >>heard' INT; "
                            ": >ready; " +
                            stay()));
  ChildProcess process(
      [&] {
        std::vector<char*> pointers;
        for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
        pointers.push_back(nullptr);
        execv(pointers[0], pointers.data());
        return 127;
      },
      true);
  const auto wait_for = [&](const auto& condition) {
    const auto limit = std::chrono::steady_clock::now() + 20s;
    while (!condition() && std::chrono::steady_clock::now() < limit) usleep(1000);
    return condition();
  };
  ASSERT_TRUE(process.wait_for_output("supervising"));
  ASSERT_TRUE(wait_for([&] { return there("ready"); }));
  process.type("\x03");
  ASSERT_TRUE(wait_for([&] { return !noted("heard").empty(); }));
  process.send(SIGTERM);
  const ChildResult ended = process.wait();
  EXPECT_EQ(ended.exit_code, 75) << ended.output;
  EXPECT_THAT(noted("heard"), ElementsAre("INT", "TERM"));
  EXPECT_EQ(lives(), 1U);
}

TEST_F(Supervise, AskedToStopWhileNothingRunsItStartsNothing) {
  Subprocess process(command({"--first-delay", "1min"}, script("exit 75")));
  ASSERT_TRUE(
      process.wait_until([&] { return process.err().find("started again in") != std::string::npos; }));
  process.send(SIGTERM);
  EXPECT_EQ(process.wait().exit_code, 75);
  EXPECT_EQ(lives(), 1U);
}

TEST_F(Supervise, WhatTheCommandLeavesBehindEndsBeforeTheNextLife) {
  const Ended ended = run({"--max-restarts", "1", "--first-delay", "1ms"},
                          "rm -f ready; sh -c 'trap \"echo late >>heard; exit 0\" TERM; : >ready; " + stay() +
                              "' & " + until("[ -e ready ]") + "; wc -l <heard >>seen 2>/dev/null; exit 75");
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_THAT(noted("heard"), ElementsAre("late", "late"));
  EXPECT_THAT(noted("seen"), ElementsAre("1")) << "the first was gone when the second life began";
}

// A shell without `exec` ends by the signal at once; its trainer commits after that.
TEST_F(Supervise, AStopOfAShellWhoseTrainerWasInterruptedIsAnInterruption) {
  for (const std::string after : {"; true", "; exit 3"}) {
    fs::remove_all(folder_.path() / "run");
    for (const std::string file : {"lives", "ready"}) fs::remove(folder_.path() / file);
    const std::string trainer =
        "(trap 'n=1; " + attempt("interrupted", "5") + "exit 75' TERM; : >ready; " + stay() + ")" + after;
    Subprocess process(command(in_directory(), script(trainer)));
    ASSERT_TRUE(process.wait_until([&] { return there("ready"); }));
    process.send(SIGTERM);
    const Ended ended = process.wait();
    EXPECT_EQ(ended.exit_code, 75) << ended.err;
    EXPECT_EQ(lives(), 1U);
    EXPECT_THAT(ended.err, HasSubstr("killed by SIGTERM, but attempt 1 says 'interrupted'"));
  }
}

TEST_F(Supervise, WhateverCodeFollowsAnInterruptionTheRunGoesOn) {
  for (const std::string code : {"3", "126", "139"}) {
    fs::remove_all(folder_.path() / "run");
    fs::remove(folder_.path() / "lives");
    const Ended ended =
        run(in_directory({"--max-restarts", "0"}), "n=1; " + attempt("interrupted", "5") + "exit " + code);
    EXPECT_EQ(ended.exit_code, 75) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("exit " + code + ", but attempt 1 says 'interrupted'"));
  }
}

// As a launcher's workers do.
TEST_F(Supervise, WhatTheCommandLeavesBehindInAnotherSessionEndsToo) {
  const Ended ended =
      run({"--max-restarts", "1", "--first-delay", "1ms"},
          "rm -f ready; setsid sh -c 'trap \"echo late >>heard; exit 0\" TERM; : >ready; " + stay() + "' & " +
              until("[ -e ready ]") + "; wc -l <heard >>seen 2>/dev/null; kill -KILL $$");
  EXPECT_EQ(ended.exit_code, 128 + SIGKILL) << ended.err;
  EXPECT_THAT(noted("heard"), ElementsAre("late", "late"));
  EXPECT_THAT(noted("seen"), ElementsAre("1")) << "the first was gone when the second life began";
}

// As a trainer starts its --on-risk command: the end of the trainer, of a life or of the supervisor is no
// reason to end it.
TEST_F(Supervise, WhatATrainerStartedForAMachineAtRiskIsLeftToItself) {
  const std::string hook =
      "if [ ! -e ready ]; then HOLDFAST_HOOK=on-risk setsid sh -c 'trap \"echo TERM >>heard\" TERM; : "
      ">ready; " +
      until("[ -e over ]") + "; echo lived >>heard; : >gone' & fi; ";
  Subprocess process(command({"--max-restarts", "1", "--first-delay", "1ms"},
                             script(hook + until("[ -e ready ]") + "; exit 75")),
                     {{"HOLDFAST_TERM_GRACE", "1s"}});
  EXPECT_EQ(process.wait().exit_code, 75) << process.err();
  EXPECT_EQ(lives(), 2U);
  EXPECT_THAT(process.err(), Not(HasSubstr("left processes behind")));
  write_text(folder_.path() / "over", "");
  const auto limit = std::chrono::steady_clock::now() + 60s;
  while (!there("gone") && std::chrono::steady_clock::now() < limit) usleep(1000);
  EXPECT_THAT(noted("heard"), ElementsAre("lived"));
}

// A hook that became root: its environment cannot be read, and it takes no signal from this user.
TEST_F(Supervise, WhatTheCommandLeavesToAnotherUserIsLeftAlone) {
  const Words powerless = {"/usr/bin/setpriv", "--bounding-set=-kill", "--inh-caps=-kill"};
  const std::string another = "setpriv --reuid=12345 --clear-groups ";
  Words probe = powerless;
  for (const char* const word : {"/bin/sh", "-c"}) probe.emplace_back(word);
  probe.push_back(another + "sleep 60 & " + until("[ \"$(stat -c %u /proc/$!)\" = 12345 ]") +
                  "; echo $!; ! kill $! && [ $(stat -c %u /proc/$!) = 12345 ]");
  const Ended tried = Subprocess(probe).wait();
  if (tried.exit_code == 0) kill(std::stoi(tried.out), SIGKILL);
  if (tried.exit_code != 0) GTEST_SKIP() << "nobody here can be another user: " << tried.err;
  for (const std::string session : {"", "setsid "}) {
    for (const std::string file : {"lives", "others"}) fs::remove(folder_.path() / file);
    Words words = powerless;
    const Words own = command({"--max-restarts", "1", "--first-delay", "1ms"},
                              script(session + another + "sleep 60 & echo $! >>others; " +
                                     until("[ \"$(stat -c %u /proc/$!)\" = 12345 ]") + "; exit 75"));
    words.insert(words.end(), own.begin(), own.end());
    const Ended ended = Subprocess(words, {{"HOLDFAST_TERM_GRACE", "1s"}}).wait();
    EXPECT_EQ(ended.exit_code, 75) << ended.err;
    EXPECT_EQ(lives(), 2U) << ended.err;
    EXPECT_THAT(ended.err, AllOf(HasSubstr("another user"), Not(HasSubstr("do not end at SIGKILL"))));
    for (const std::string& other : noted("others")) EXPECT_EQ(kill(std::stoi(other), SIGKILL), 0);
  }
}

// So that a run that a hook has started is no hook.
TEST_F(Supervise, ACommandIsNoHookWhereverItsSupervisorWasStarted) {
  Subprocess process(command({"--max-restarts", "0"},
                             script("setsid sh -c 'trap \"echo late >>heard; exit 0\" TERM; : >ready; " +
                                    stay() + "' & " + until("[ -e ready ]") + "; exit 75")),
                     {{"HOLDFAST_HOOK", "on-risk"}});
  EXPECT_EQ(process.wait().exit_code, 75);
  EXPECT_THAT(noted("heard"), ElementsAre("late"));
}

// `holdfast supervise … > >(tee log)`: bash hands its children down.
TEST_F(Supervise, ChildrenThatItHadBeforeAreLeftAlone) {
  const std::string own = quoted(command({"--max-restarts", "0"}, script("exit 75")));
  const std::string in_folder = "cd '" + folder_.path().string() + "'; ";
  const Ended ended =
      Subprocess({"/bin/sh", "-c",
                  in_folder + "(trap 'echo TERM >>heard' TERM; : >ready; " + until("[ -e over ]") +
                      "; echo lives >>heard; : >gone) & " + until("[ -e ready ]") + "; exec" + own})
          .wait();
  write_text(folder_.path() / "over", "");
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  const auto limit = std::chrono::steady_clock::now() + 60s;
  while (!there("gone") && std::chrono::steady_clock::now() < limit) usleep(1000);
  EXPECT_THAT(noted("heard"), ElementsAre("lives"));
}

// Of another's child that has lost its parent while the command ran: nobody ends it.
std::string orphan_of_another() {
  return "(echo started >middle; setsid sh -c 'trap \"echo TERM >>heard\" TERM; : >ready; " +
         until("[ -e over ]") + "; echo lives >>heard; : >gone' & " + until("[ -e lives ] && [ -e ready ]") +
         "; : >alone)";
}

TEST_F(Supervise, WhatItsEarlierChildrenLeaveBehindIsLeftAlone) {
  const std::string in_folder = "cd '" + folder_.path().string() + "'; ";
  Subprocess process(
      {"/bin/sh", "-c",
       in_folder + orphan_of_another() + " & exec" +
           quoted(command({"--max-restarts", "0"}, script(until("[ -e alone ]") + "; sleep 0.5; exit 75")))},
      {{"HOLDFAST_TERM_GRACE", "1s"}});
  const Ended ended = process.wait();
  write_text(folder_.path() / "over", "");
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_THAT(ended.err, Not(HasSubstr("left processes behind")));
  const auto limit = std::chrono::steady_clock::now() + 60s;
  while (!there("gone") && std::chrono::steady_clock::now() < limit) usleep(1000);
  EXPECT_THAT(noted("heard"), ElementsAre("lives"));
}

// A supervisor with children of others works in a child of its own; the kernel tells neither of them twice.
TEST_F(Supervise, BesideOthersChildrenSignalsAndEndsAreTheSame) {
  const auto beside = [&](const Words& child) {
    return Words{"/bin/sh", "-c", "sleep 60 & exec" + quoted(command({"--max-restarts", "0"}, child))};
  };
  EXPECT_EQ(Subprocess(beside(script("exit 78"))).wait().exit_code, 78);
  EXPECT_EQ(Subprocess(beside({"./there-is-none"})).wait().exit_code, 127);
  for (const int signal : {SIGTERM, SIGINT, SIGKILL}) {
    for (const std::string file : {"lives", "ready", "heard"}) fs::remove(folder_.path() / file);
    Subprocess process(beside(script(listens())));
    ASSERT_TRUE(process.wait_until([&] { return there("ready"); }));
    process.send(signal);
    const Ended ended = process.wait();
    EXPECT_EQ(ended.exit_code, signal == SIGKILL ? -1 : 75) << ended.err;
    const auto limit = std::chrono::steady_clock::now() + 60s;
    while (noted("heard").empty() && std::chrono::steady_clock::now() < limit) usleep(1000);
    EXPECT_THAT(noted("heard"), ElementsAre(signal == SIGINT ? "INT" : "TERM"));
  }
}

TEST_F(Supervise, WhenItDiesTheCommandHearsSigterm) {
  Subprocess process(command(kSoon, script(listens())));
  ASSERT_TRUE(process.wait_until([&] { return there("ready"); }));
  process.send(SIGKILL);
  process.wait();
  const auto limit = std::chrono::steady_clock::now() + 60s;
  while (noted("heard").empty() && std::chrono::steady_clock::now() < limit) usleep(1000);
  EXPECT_THAT(noted("heard"), ElementsAre("TERM"));
}

// As a trainer claims the run; `start` is its start time.
std::string claim_as_process(const std::string& start = "$(sed 's/.*) //' /proc/$$/stat | cut -d' ' -f20)") {
  return "mkdir -p run/attempts; n=1; echo \"{\\\"boot_id\\\": \\\"$(cat "
         "/proc/sys/kernel/random/boot_id)\\\", \\\"pid\\\": $$, \\\"pid_start\\\": " +
         start +
         ", \\\"pid_ns\\\": $(stat -L -c %i /proc/self/ns/pid), \\\"supervisor\\\": "
         "\\\"$HOLDFAST_SUPERVISOR\\\"}\" >run/attempts/1; ";
}

class OrphanedTrainer : public Supervise {
 protected:
  // The first life survives its supervisor, which is killed. What the second one, of the next supervisor,
  // sees.
  Words seen_after(const std::string& first_life) {
    const std::string text = "if [ $(wc -l <lives) = 2 ]; then cat heard >seen; exit 76; fi; " + first_life;
    Subprocess killed(command(in_directory(), script(text)));
    EXPECT_TRUE(killed.wait_until([&] { return there("ready"); }));
    killed.send(SIGKILL);
    killed.wait();
    Subprocess next(command(in_directory(), script(text)), {{"HOLDFAST_TERM_GRACE", "1s"}});
    EXPECT_EQ(next.wait().exit_code, 76) << next.err();
    said_ = next.err();
    return noted("seen");
  }
  std::string said_;
};

TEST_F(OrphanedTrainer, CommitsBeforeTheNextOneStarts) {
  EXPECT_THAT(seen_after("trap 'sleep 2; echo committed >>heard; exit 75' TERM; " + claim_as_process() +
                         ": >ready; " + stay()),
              testing::Contains("committed"));
  EXPECT_THAT(said_, HasSubstr("still runs, and its supervisor does not"));
}

TEST_F(OrphanedTrainer, IsKilledWhereItDoesNotLeave) {
  seen_after("trap '' TERM; echo $$ >pid; " + claim_as_process() + ": >ready; " + stay());
  EXPECT_THAT(said_, HasSubstr("it is killed"));
  EXPECT_EQ(start_of_process(std::stoi(read_text(folder_.path() / "pid"))), 0U);
}

TEST_F(OrphanedTrainer, OfWhichTheStartTimeDiffersIsAnotherProcess) {
  seen_after("trap '' TERM; echo $$ >pid; " + claim_as_process("1") + ": >ready; " + stay());
  EXPECT_THAT(said_, Not(HasSubstr("still runs")));
  const int bystander = std::stoi(read_text(folder_.path() / "pid"));
  EXPECT_EQ(kill(bystander, 0), 0);
  kill(bystander, SIGKILL);
}

TEST_F(OrphanedTrainer, OfALivingSupervisorIsLeftAlone) {
  Subprocess first(command(in_directory(), script(claim_as_process() + listens())));
  ASSERT_TRUE(first.wait_until([&] { return there("ready"); }));
  EXPECT_EQ(run(in_directory(), "exit 76").exit_code, 76);
  EXPECT_TRUE(first.running());
  EXPECT_THAT(noted("heard"), SizeIs(0));
  first.send(SIGTERM);
  EXPECT_EQ(first.wait().exit_code, 75);
}

TEST_F(Supervise, WorksAsProcessOne) {
  const Words inside = {"/usr/bin/unshare", "--pid", "--fork", "--kill-child", "--mount-proc"};
  Words probe = inside;
  probe.emplace_back("/bin/true");
  if (const Ended tried = Subprocess(probe).wait(); tried.exit_code != 0) {
    GTEST_SKIP() << "no process namespaces here: " << tried.err;
  }
  // An orphan whose parent is gone; then a SIGTERM to process 1, which has no default for it.
  const std::string text =
      "trap 'echo TERM >>heard; exit 75' TERM; (setsid sh -c 'echo $$ >orphan.new; mv orphan.new orphan' "
      "&); " +
      until("[ -e orphan ]") + "; " + until("[ ! -e /proc/$(cat orphan) ]") +
      "; echo reaped >>heard; kill -TERM 1; " + stay();
  Words words = inside;
  const Words own = command(kSoon, script(text));
  words.insert(words.end(), own.begin(), own.end());
  const Ended ended = Subprocess(words).wait(60s);
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_THAT(noted("heard"), ElementsAre("reaped", "TERM"));
  EXPECT_EQ(lives(), 1U);
}

// Somebody works in the container (`docker exec`) and leaves something running.
TEST_F(Supervise, AsProcessOneItEndsOnlyWhatItsCommandLeftBehind) {
  Words words = {"/usr/bin/unshare", "--pid", "--fork", "--kill-child", "--mount-proc"};
  const Words own =
      command({"--first-delay", "1ms"},
              script("[ $(wc -l <lives) -lt 2 ] || exit 76; : >begun; " + until("[ -e entered ]") +
                     "; setsid sh -c 'trap \"echo mine >>heard; exit 0\" TERM; : >left; " + stay() + "' & " +
                     until("[ -e left ]") + "; exit 75"));
  words.insert(words.end(), own.begin(), own.end());
  Subprocess process(words, {{"HOLDFAST_TERM_GRACE", "1s"}});
  if (!process.wait_until([&] { return there("begun"); })) {
    GTEST_SKIP() << "no process namespaces here: " << process.err();
  }
  const std::string inside = "/proc/" + std::to_string(process.pid()) + "/ns/pid_for_children";
  const Ended entered = Subprocess({"/usr/bin/nsenter", "--pid=" + inside, "/bin/sh", "-c",
                                    "cd '" + folder_.path().string() +
                                        "'; setsid sh -c 'trap \"echo another >>heard; exit 0\" TERM; "
                                        ": >ready; " +
                                        stay() + "' & " + until("[ -e ready ]")})
                            .wait();
  ASSERT_EQ(entered.exit_code, 0) << entered.err;
  write_text(folder_.path() / "entered", "");
  const Ended ended = process.wait();
  EXPECT_EQ(ended.exit_code, 76) << ended.err;
  EXPECT_THAT(noted("heard"), ElementsAre("mine"));
}

}}  // namespace holdfast::test
