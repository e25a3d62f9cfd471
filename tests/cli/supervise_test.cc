// `holdfast supervise` with small shell scripts in the place of trainers.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "holdfast/base/machine.h"
#include "holdfast/store/names.h"
#include "holdfast/store/run_state.h"
#include "support/child_process.h"
#include "support/subprocess.h"

namespace holdfast::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

using Words = std::vector<std::string>;

// Where there is no reason to wait for long.
const Words kSoon = {"--first-delay", "1ms"};

// In a script: for a minute at most, so that nothing stays behind when a test fails.
std::string until(const std::string& condition) {
  return "n=0; until " + condition + " || [ $n -ge 6000 ]; do sleep 0.01; n=$((n+1)); done";
}
std::string stay() { return until("false"); }

class Supervise : public testing::Test {
 protected:
  static Words command(Words options, const Words& child) {
    options.insert(options.begin(), {HOLDFAST_BIN_DIR "/holdfast", "supervise"});
    options.emplace_back("--");
    options.insert(options.end(), child.begin(), child.end());
    return options;
  }
  // A script, in the folder of the test; it notes each of its lives.
  Words script(const std::string& text) const {
    return {"/bin/sh", "-c", "cd '" + folder_.path().string() + "'; echo life >>lives; " + text};
  }
  Ended run(const Words& options, const std::string& text) const {
    return Subprocess(command(options, script(text))).wait();
  }
  std::size_t lives() const { return noted("lives").size(); }
  Words noted(const std::string& file) const { return lines_of(read_text(folder_.path() / file)); }
  bool there(const std::string& file) const { return fs::exists(folder_.path() / file); }

  // What a run directory says.
  fs::path directory() const { return folder_.path() / "run"; }
  void say(const RunState& state) const {
    fs::create_directories(directory() / kAttemptsDirectory);
    write_text(directory() / kAttemptsDirectory / claim_name(state.attempt), "");
    write_text(directory() / kAttemptsDirectory / state_name(state.attempt), to_json(state));
  }
  void claim(AttemptNumber attempt) const {
    fs::create_directories(directory() / kAttemptsDirectory);
    write_text(directory() / kAttemptsDirectory / claim_name(attempt), "");
  }
  static RunState interrupted_here() {
    RunState state{.attempt = 1, .phase = RunPhase::interrupted, .step = 7, .durable_step = 7};
    state.boot_id = boot_id();
    return state;
  }
  static std::int64_t now_ms() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
  static std::string notice(std::chrono::milliseconds left, const std::string& kind = "deadline",
                            const std::string& source = "ec2", std::int64_t at = now_ms()) {
    return R"({"event":"notice","t":)" + std::to_string(at) + R"(,"source":")" + source + R"(","kind":")" +
           kind + R"(","left_ms":)" + std::to_string(left.count()) + "}\n";
  }
  void write_ledger(const std::string& lines) const {
    write_text(directory() / ledger_name(1), R"({"event":"start","attempt":1,"step":0})"
                                             "\n" +
                                                 lines);
  }
  // Lives when a run that ended with 75 has said this.
  std::size_t lives_after(const RunState& state, const std::string& ledger) const {
    say(state);
    write_ledger(ledger);
    Subprocess process(command({"--directory", directory().string(), "--first-delay", "1ms"},
                               script("[ $(wc -l <lives) -lt 2 ] || exit 76; exit 75")));
    process.wait_until([&] { return process.err().find("goes away") != std::string::npos; });
    process.send(SIGTERM);
    process.wait();
    return lives();
  }

  TemporaryFolder folder_;
};

TEST_F(Supervise, HelpHasAnExample) {
  const Ended ended = Subprocess({HOLDFAST_BIN_DIR "/holdfast", "supervise", "--help"}).wait();
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("Example:\n  holdfast supervise "), HasSubstr("Exit code:")));
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
      {0, "complete"}, {64, "wrong options"},      {74, "look at the volume"},
      {76, "newer"},   {78, "resume was refused"}, {130, "by hand"},
      {126, "nothing"}};
  for (const auto& [code, text] : why) {
    fs::remove(folder_.path() / "lives");
    const Ended ended = run(kSoon, "exit " + std::to_string(code));
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
  const std::string more =
      "n=$(wc -l <lives); mkdir -p run/attempts; : >run/attempts/$n; "
      "echo '{\"attempt\": '$n', \"phase\": \"interrupted\", \"durable_step\": '$n'}' "
      ">run/attempts/$n.state.json; [ $n -lt 6 ] || exit 0; exit 75";
  const Ended ended =
      run({"--max-restarts", "1", "--first-delay", "1ms", "--directory", directory().string()}, more);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(lives(), 6U);
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

std::string listens() {
  return "trap 'echo USR1 >>heard' USR1; trap 'echo TERM >>heard; exit 75' TERM; trap 'echo INT >>heard; "
         "exit 75' INT; trap 'echo HUP >>heard; exit 75' HUP; : >ready; " +
         stay();
}

TEST_F(Supervise, SignalsArriveOnceAndNothingStartsAgain) {
  std::signal(SIGHUP, SIG_DFL);  // whoever started the tests may ignore it, and that is handed down
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    for (const std::string file : {"lives", "ready", "heard"}) fs::remove(folder_.path() / file);
    Subprocess process(command(kSoon, script(listens())));
    ASSERT_TRUE(process.wait_until([&] { return there("ready"); }));
    process.send(SIGUSR1);
    ASSERT_TRUE(process.wait_until([&] { return !noted("heard").empty(); })) << "USR1";
    process.send(signal);
    const Ended ended = process.wait();
    EXPECT_EQ(ended.exit_code, 75) << ended.err;
    EXPECT_EQ(lives(), 1U);
    // A trainer does not listen to SIGHUP; it would die of it.
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

// `holdfast supervise … > >(tee log)`: bash hands its children down.
TEST_F(Supervise, ChildrenThatItHadBeforeAreLeftAlone) {
  std::string own;
  for (const std::string& word : command({"--max-restarts", "0"}, script("exit 75"))) {
    own += " '";
    for (const char letter : word) own += letter == '\'' ? "'\\''" : std::string(1, letter);
    own += "'";
  }
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

TEST_F(Supervise, WhenItDiesTheCommandHearsSigterm) {
  Subprocess process(command(kSoon, script(listens())));
  ASSERT_TRUE(process.wait_until([&] { return there("ready"); }));
  process.send(SIGKILL);
  process.wait();
  const auto limit = std::chrono::steady_clock::now() + 60s;
  while (noted("heard").empty() && std::chrono::steady_clock::now() < limit) usleep(1000);
  EXPECT_THAT(noted("heard"), ElementsAre("TERM"));
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

class OnComplete : public Supervise {
 protected:
  // Exit code and words of a life that ends with `code` in a directory that says what it says.
  Ended end(int code, const std::string& hook = "echo cancelled >>hook") {
    return run({"--directory", directory().string(), "--max-restarts", "0", "--on-complete",
                "cd '" + folder_.path().string() + "'; " + hook},
               "exit " + std::to_string(code));
  }
};

TEST_F(OnComplete, RunsWhenCodeAndStateSaySo) {
  claim(1);
  say({.attempt = 2, .phase = RunPhase::complete, .step = 100, .durable_step = 100});
  const Ended ended = end(0);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(noted("hook"), ElementsAre("cancelled"));
  EXPECT_THAT(ended.err, HasSubstr("complete at step 100"));
}

TEST_F(OnComplete, NeitherAloneIsEnough) {
  say({.attempt = 1, .phase = RunPhase::complete});
  for (const int code : {75, 74, 1, 78}) EXPECT_EQ(end(code).exit_code, code);
  say({.attempt = 2, .phase = RunPhase::interrupted, .reason = "SIGTERM"});
  Ended ended = end(0);
  EXPECT_EQ(ended.exit_code, 70);
  EXPECT_THAT(ended.err, HasSubstr("attempt 2 says 'interrupted', not 'complete' (SIGTERM)"));
  claim(3);  // and has not said anything yet
  ended = end(0);
  EXPECT_EQ(ended.exit_code, 70);
  EXPECT_THAT(ended.err, HasSubstr("attempt 3 has said nothing"));
  fs::remove_all(directory());
  EXPECT_EQ(end(0).exit_code, 70);
  fs::create_directories(directory());
  EXPECT_EQ(end(0).exit_code, 70);
  EXPECT_FALSE(there("hook"));
}

TEST_F(OnComplete, AZombiesCopyIsNotBelieved) {
  say({.attempt = 5, .phase = RunPhase::running});
  write_text(directory() / kRunStateName, to_json({.attempt = 4, .phase = RunPhase::complete}));
  EXPECT_EQ(end(0).exit_code, 70);
  EXPECT_FALSE(there("hook"));
}

TEST_F(OnComplete, AHookThatFailsIsSaid) {
  say({.attempt = 1, .phase = RunPhase::complete});
  const Ended ended = end(0, "exit 3");
  EXPECT_EQ(ended.exit_code, 70);
  EXPECT_THAT(ended.err, HasSubstr("--on-complete: exit 3; the run itself is complete"));
}

}  // namespace
}  // namespace holdfast::test
