// `holdfast supervise --standby --mirror HOME`: two machines with a disk each, and a HOME that both reach.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "crash/driver_run.h"
#include "holdfast/store/names.h"
#include "holdfast/store/run_state.h"
#include "holdfast/store/standby_sign.h"
#include "support/nightly.h"
#include "support/subprocess.h"
#include "support/syscall_tracer.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

using Words = std::vector<std::string>;
using Environment = std::map<std::string, std::string>;
using Process = std::unique_ptr<Subprocess>;

const std::string kHoldfast = HOLDFAST_BIN_DIR "/holdfast";
// A step of 10 ms: no test waits for the end of such a run.
const Words kSlow = {"every=50", "pace-us=10000"};
constexpr std::int64_t kEndless = 1'000'000;
// Minutes of a slow trainer away, and seconds of a quick one.
constexpr std::int64_t kFar = 20'000;
const Words kQuick = {"every=2000"};

bool started(const Process& process) { return last_step(process->out(), "started") >= 0; }

// A store is asked seldom, so such a test takes half a minute.
constexpr char kByNight[] = "only with HOLDFAST_NIGHTLY=1: a store is slow";

class StandbyHome : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (is_store() && system("rclone version >/dev/null 2>&1") != 0)
      GTEST_SKIP() << "rclone is not installed";
  }
  static bool is_store() { return std::string(GetParam()) == "Store"; }
  fs::path home() const { return folder_.path() / "home"; }
  // rclone's remote on the fly has its objects in the same folder.
  std::string place() const { return (is_store() ? "rclone::local:" : "") + home().native(); }
  fs::path disk(const std::string& machine) const { return folder_.path() / machine / "run"; }

  Process supervise(const std::string& machine, Words options, std::int64_t steps, const Words& pace,
                    Environment environment = {}) const {
    fs::create_directories(folder_.path() / machine);
    options.insert(options.begin(), {kHoldfast, "supervise", "--first-delay", "1ms", "--directory",
                                     disk(machine), "--mirror", place()});
    options.emplace_back("--");
    const Words trainer = driver(disk(machine), steps, pace);
    options.insert(options.end(), trainer.begin(), trainer.end());
    return std::make_unique<Subprocess>(options, environment);
  }
  // Returns once something is home.
  Process hold(const Environment& environment = {}) const {
    Process holder = supervise("a", {}, kEndless, kSlow, environment);
    EXPECT_TRUE(holder->wait_until([&] { return newest_home(holder) > 0; })) << holder->err();
    return holder;
  }
  // Returns once it has a checkpoint at hand.
  Process stand_by(const std::string& machine = "b", std::int64_t steps = kFar,
                   const Words& pace = kQuick) const {
    Process standby = supervise(machine, {"--standby"}, steps, pace);
    EXPECT_TRUE(standby->wait_until([&] { return at_hand(machine) >= 0; })) << standby->err();
    return standby;
  }
  // The newest step that is home, as the machine's log says. rclone's local remote writes in place, so a name
  // says nothing.
  static std::int64_t newest_home(const Process& machine) {
    std::int64_t newest = -1;
    for (const std::string& line : lines_of(machine->err())) {
      const std::size_t begin = line.find("step ");
      const std::size_t end = line.find(" is home in ");
      if (begin == std::string::npos || end == std::string::npos) continue;
      std::string number = line.substr(begin + 5, end - begin - 5);
      std::erase(number, ',');
      newest = std::max<std::int64_t>(newest, std::stoll(number));
    }
    return newest;
  }
  static std::int64_t step_in(const fs::path& sign) {
    const auto found = standby_sign_from_json(read_text(sign));
    return found ? found->step : -1;
  }
  std::int64_t at_hand(const std::string& machine) const { return step_in(disk(machine) / "standby.json"); }
  fs::path sign() const { return home() / "attempts" / "standby.json"; }
  std::set<std::string> claims() const {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(home() / "attempts")) {
      const std::string name = entry.path().filename().native();
      if (parse_claim_name(name.substr(0, name.find('.'))) && !parse_holder_name(name)) found.insert(name);
    }
    return found;
  }
  // Power is cut: the supervisor, its mirror and its trainer at once.
  void kill_machine(const std::string& machine) const {
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string id = entry.path().filename().native();
      if (id.find_first_not_of("0123456789") != std::string::npos) continue;
      if (read_text(entry.path() / "cmdline").find(disk(machine).native()) == std::string::npos) continue;
      kill(static_cast<pid_t>(std::stol(id)), SIGKILL);
    }
  }
  // For people: what lies beside the claims.
  std::string notes() const {
    std::string all;
    for (const auto& entry : fs::directory_iterator(home() / "attempts")) {
      all += "\n" + entry.path().filename().native() + ": ";
      if (entry.is_regular_file()) all += read_text(entry.path());
    }
    return all;
  }
  Ended takeover() const { return Subprocess({kHoldfast, "takeover", place()}).wait(); }
  static void expect_the_end(const Process& standby, std::int64_t from) {
    const Ended ended = standby->wait();
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_GE(last_step(ended.out, "started"), from) << "nothing that was home is done again" << ended.err;
    EXPECT_EQ(state_in(ended.last_line()), straight_state(kFar, kQuick)) << ended.err;
  }

  TemporaryFolder folder_;
};

TEST_P(StandbyHome, FetchesAheadAndGoesOnWhenTheHolderIsInterrupted) {
  const Process holder = hold();
  const Process standby = stand_by();
  EXPECT_THAT(standby->err(), HasSubstr("standing by for attempt 1"));
  const std::int64_t first = at_hand("b");
  EXPECT_TRUE(standby->wait_until([&] { return at_hand("b") > first; })) << "it follows newer checkpoints";
  EXPECT_EQ(claims().size(), 1U) << "it claims nothing";
  holder->send(SIGTERM);
  const Ended left = holder->wait();
  EXPECT_EQ(left.exit_code, 75) << left.err;
  expect_the_end(standby, last_step(left.out, "interrupted"));
  EXPECT_FALSE(fs::exists(sign())) << "it waits no more";
}

TEST_P(StandbyHome, AHolderWithADeadlineHandsOverAtOnce) {
  if (is_store() && !nightly()) GTEST_SKIP() << kByNight;
  const fs::path notice = folder_.path() / "notice";
  const Process holder = hold({{"HOLDFAST_NOTICE_FILE", notice.native()}});
  const Process standby = stand_by();
  ASSERT_TRUE(
      holder->wait_until([&] { return holder->err().find("this run hands over to it") != std::string::npos; },
                         std::chrono::seconds(100)))
      << holder->err();
  // Later than this test may last.
  write_text(notice, R"({"action": "stop", "in_seconds": 3000})");
  ASSERT_TRUE(holder->wait_until([&] { return last_step(holder->out(), "interrupted") >= 0; }))
      << holder->err();
  expect_the_end(standby, last_step(holder->out(), "interrupted"));
  EXPECT_THAT(holder->err(), HasSubstr("exit 75"));
  holder->send(SIGTERM);
  holder->wait();
}

TEST_P(StandbyHome, TakeoverGoesOnWithTheRunOfAMachineThatDied) {
  const Process holder = hold();
  const Process standby = stand_by();
  kill_machine("a");
  holder->wait();
  const std::int64_t home = newest_home(holder);
  const std::size_t before = claims().size();
  const Ended told = takeover();
  EXPECT_EQ(told.exit_code, 0) << told.err;
  EXPECT_THAT(told.out, HasSubstr("is fenced off by attempt"));
  EXPECT_GT(claims().size(), before);
  expect_the_end(standby, home);
}

// The last one was killed between the name of its claim and the text.
TEST_P(StandbyHome, TakeoverOfAClaimThatIsEmpty) {
  if (is_store()) return;  // an object comes as a whole
  fs::create_directories(home() / "attempts");
  write_text(home() / "attempts/1", R"({"by":"mirror"})");
  write_text(home() / "attempts/1.holder.json", R"({"attempt":1,"phase":"running"})");
  write_text(home() / "attempts/2", "");
  const Ended told = takeover();
  EXPECT_EQ(told.exit_code, 0) << told.err;
  EXPECT_THAT(told.out, HasSubstr("attempt 2 is fenced off by attempt 3"));
  EXPECT_TRUE(fs::exists(home() / "attempts/3.holder.json"));
}

TEST_P(StandbyHome, TakeoverOfWhatEndsMeanwhileKeepsThatEnd) {
  if (is_store()) return;  // its claim is another program's call
  if (const auto why = SyscallTracer::why_not()) GTEST_SKIP() << *why;
  fs::create_directories(home() / "attempts");
  write_text(home() / "attempts/1", R"({"by":"mirror"})");
  write_text(home() / "attempts/1.holder.json", R"({"schema":1,"attempt":1,"phase":"running"})");
  SyscallTracer takeover({kHoldfast, "takeover", place()}, {}, fs::canonical(home()));
  ASSERT_TRUE(takeover.run_to([](const ChangingCall& call) { return call.path.ends_with("/attempts/2"); },
                              Moment::before));
  write_text(home() / "attempts/1.holder.json", R"({"schema":1,"attempt":1,"phase":"complete"})");
  const Ended ended = takeover.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("attempt 1 has just ended (complete)"));
  const auto told = run_state_from_json(read_text(home() / "attempts/2.holder.json"));
  ASSERT_TRUE(told);
  EXPECT_EQ(told->phase, RunPhase::complete);
}

TEST_P(StandbyHome, TakesOverAfterASilenceOnlyIfThatWasAskedFor) {
  if (is_store() && !nightly()) GTEST_SKIP() << kByNight;
  const Process holder = hold();
  kill_machine("a");
  holder->wait();
  const std::int64_t home = newest_home(holder);
  fs::create_directories(folder_.path() / "b");
  // The least that a supervisor takes is 30 s.
  const Process standby = std::make_unique<Subprocess>(
      driver(disk("b"), kFar, kQuick),
      Environment{
          {"HOLDFAST_STANDBY", "1"}, {"HOLDFAST_MIRROR_HOME", place()}, {"HOLDFAST_TAKEOVER_AFTER", "1s"}});
  expect_the_end(standby, home);
}

TEST_P(StandbyHome, TakeoverEndsAHolderThatLives) {
  if (is_store() && !nightly()) GTEST_SKIP() << kByNight;
  const Process holder = hold();
  const Process standby = stand_by();
  const std::int64_t home = newest_home(holder);
  const Ended told = takeover();
  EXPECT_EQ(told.exit_code, 0) << told.err;
  expect_the_end(standby, home);
  EXPECT_EQ(holder->wait().exit_code, 76);
  const Ended again = takeover();
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("has ended already (complete); nothing was changed"));
}

TEST_P(StandbyHome, OfTwoOneGoesOnAndTheOtherStandsByAgain) {
  if (is_store() && !nightly()) GTEST_SKIP() << kByNight;
  const Process holder = hold();
  const Process first = stand_by("b", kFar, kSlow);
  const Process second = stand_by("c", kFar, kSlow);
  holder->send(SIGTERM);
  EXPECT_EQ(holder->wait().exit_code, 75);
  ASSERT_TRUE(first->wait_until([&] { return started(first) || started(second); }))
      << first->err() << second->err();
  const Process& winner = started(first) ? first : second;
  const Process& other = started(first) ? second : first;
  const auto waits_again = [&] {
    const std::string told = other->err();
    return told.rfind("standing by for attempt") > told.find("standing by for attempt");
  };
  EXPECT_TRUE(other->wait_until(waits_again)) << other->err();
  EXPECT_TRUE(winner->running());
  EXPECT_FALSE(started(other)) << "two hold the run";
  winner->send(SIGTERM);
  const Ended left = winner->wait();
  EXPECT_EQ(left.exit_code, 75) << left.err;
  ASSERT_TRUE(other->wait_until([&] { return started(other); })) << other->err();
  EXPECT_GE(last_step(other->out(), "started"), last_step(left.out, "interrupted")) << "no step twice";
}

// Machines that end one after the other, by an announced end or a power cut, at any moment.
TEST_P(StandbyHome, AChainOfMachinesEndsInTheSameState) {
  if (is_store() && !nightly()) GTEST_SKIP() << kByNight;
  std::mt19937 random(42);
  const int machines = is_store() ? 3 : nightly() ? 10 : 6;
  Process holder = hold();
  std::string holds = "a";
  for (int turn = 1; turn <= machines; ++turn) {
    const std::string next = "m" + std::to_string(turn);
    const bool last = turn == machines;
    Process standby = last ? stand_by(next) : stand_by(next, kEndless, kSlow);
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 500));
    std::int64_t from = 0;
    if (turn % 2 == 0) {
      kill_machine(holds);
      holder->wait();
      from = newest_home(holder);
      const Ended told = takeover();
      EXPECT_EQ(told.exit_code, 0) << told.err;
      EXPECT_THAT(told.out, HasSubstr("is fenced off by attempt"));
    } else {
      holder->send(SIGTERM);
      const Ended left = holder->wait();
      EXPECT_EQ(left.exit_code, 75) << left.err;
      from = last_step(left.out, "interrupted");
    }
    ASSERT_TRUE(last || standby->wait_until([&] { return started(standby); })) << standby->err() << notes();
    if (last) return expect_the_end(standby, from);
    EXPECT_GE(last_step(standby->out(), "started"), from) << "nothing that was home is done again";
    ASSERT_LT(last_step(standby->out(), "started"), kFar) << "the machine is too slow for this test";
    holder = std::move(standby);
    holds = next;
  }
}

TEST_P(StandbyHome, EndsAtSigtermAndHasClaimedNothing) {
  if (is_store() && !nightly()) GTEST_SKIP() << kByNight;
  const Process holder = hold();
  const Process standby = stand_by();
  const auto before = claims();
  standby->send(SIGTERM);
  const Ended ended = standby->wait();
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("while standing by; nothing was claimed"));
  EXPECT_EQ(claims(), before);
  EXPECT_FALSE(fs::exists(disk("b") / "standby.json"));
  EXPECT_TRUE(holder->running());
}

TEST_P(StandbyHome, OutlivesAHomeThatIsAway) {
  if (is_store() && !nightly()) GTEST_SKIP() << kByNight;
  const Process holder = hold();
  const Process standby = stand_by();
  const std::size_t before = claims().size();
  fs::rename(home(), folder_.path() / "away");
  write_text(home(), "no directory");
  EXPECT_TRUE(standby->wait_until([&] {
    return standby->err().find("goes on waiting, and looks again") != std::string::npos;
  })) << standby->err();
  fs::remove(home());
  fs::rename(folder_.path() / "away", home());
  const std::int64_t first = at_hand("b");
  EXPECT_TRUE(standby->wait_until([&] { return at_hand("b") > first; })) << standby->err();
  EXPECT_FALSE(started(standby));
  EXPECT_EQ(claims().size(), before) << "a HOME that is away says nothing about the holder";
  holder->send(SIGTERM);
  const Ended left = holder->wait();
  EXPECT_EQ(left.exit_code, 75) << left.err;
  expect_the_end(standby, last_step(left.out, "interrupted"));
}

TEST_P(StandbyHome, AHolderEndsThoughItsHomeIsAway) {
  if (is_store() && !nightly()) GTEST_SKIP() << kByNight;
  const Process holder = hold({{"HOLDFAST_TERM_GRACE", "2s"}});
  const Process standby = stand_by();
  const std::int64_t home_step = newest_home(holder);
  fs::rename(home(), folder_.path() / "away");
  write_text(home(), "no directory");
  holder->send(SIGTERM);
  const Ended left = holder->wait();
  EXPECT_EQ(left.exit_code, 75) << left.err;
  fs::remove(home());
  fs::rename(folder_.path() / "away", home());
  // HOME has not heard of the end.
  EXPECT_FALSE(started(standby));
  EXPECT_EQ(takeover().exit_code, 0);
  expect_the_end(standby, home_step);
}

TEST_P(StandbyHome, EndsWhenTheRunIsComplete) {
  if (is_store() && !nightly()) GTEST_SKIP() << kByNight;
  const Process holder = supervise("a", {}, 300, kSlow);
  const Process standby = supervise("b", {"--standby"}, 300, kSlow);
  const Ended complete = holder->wait();
  EXPECT_EQ(complete.exit_code, 0) << complete.err;
  const Ended ended = standby->wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_FALSE(started(standby)) << "it has claimed nothing";
}

// A launcher may turn the code of a standby that was told to end into 0. The holder trains on.
TEST_P(StandbyHome, AZeroOfACommandIsNoCompleteRun) {
  if (is_store() && !nightly()) GTEST_SKIP() << kByNight;
  const Process holder = hold();
  const Ended ended = Subprocess({kHoldfast, "supervise", "--standby", "--max-restarts", "0", "--directory",
                                  disk("b"), "--mirror", place(), "--", "/bin/sh", "-c", "exit 0"})
                          .wait();
  EXPECT_EQ(ended.exit_code, 70) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("the run is not complete"));
}

TEST_P(StandbyHome, IsInTheStatus) {
  if (is_store() && !nightly()) GTEST_SKIP() << kByNight;
  const Process holder = hold();
  const auto status = [&](const fs::path& of) { return Subprocess({kHoldfast, "status", of}).wait().out; };
  EXPECT_THAT(status(disk("a")), Not(HasSubstr("standby")));
  const Process standby = stand_by();
  EXPECT_TRUE(holder->wait_until([&] { return step_in(disk("a") / "standby.json") >= 0; },
                                 std::chrono::seconds(100)));
  EXPECT_THAT(status(disk("a")), HasSubstr("at hand, waits for"));
  EXPECT_THAT(status(disk("b")), HasSubstr("at hand, waits for"));
  if (is_store()) return;
  EXPECT_THAT(status(home()), HasSubstr("at hand, waits for"));
}

INSTANTIATE_TEST_SUITE_P(With, StandbyHome, testing::Values("Directory", "Store"),
                         [](const testing::TestParamInfo<const char*>& info) {
                           return std::string(info.param);
                         });

}}  // namespace holdfast::test
