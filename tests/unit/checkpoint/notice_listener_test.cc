// Who hears of a notice, and what is done for one that the training does not look at.
#include "holdfast/checkpoint/internal/notice_listener.h"

#include <atomic>
#include <cstdlib>
#include <thread>

#include "announcer.h"
#include "rig.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using internal::NoticeListener;
using testing::ElementsAre;
using testing::HasSubstr;

// Other ranks that count what they are told, and may call.
class CallingPartners final : public internal::SavePartners {
 public:
  void heard(const Notice& /*notice*/) noexcept override { ++told; }
  bool call() const noexcept override { return calls; }
  bool may_call() const noexcept override { return true; }
  bool leads() const override { return rank == 0; }
  std::atomic<int> told{0};
  std::atomic<bool> calls{false};
  int rank = 0;
};

class NoticeListenerTest : public testing::Test {
 protected:
  NoticeListenerTest() { announcer.give_to(options); }
  ~NoticeListenerTest() override {
    if (listener) listener->stop();
  }
  void start() {
    run.emplace(source, options);
    listener.emplace(*run, partners,
                     NoticeListener::Evaluating{.runs = [this] { return evaluates.load(); },
                                                .commit = [this] { ++commits; }});
    listener->start();
  }
  std::vector<std::string> ledger() {
    std::vector<std::string> lines;
    run->ledger.drain([&](const std::string& line) { lines.push_back(line); });
    return lines;
  }

  Volume volume;
  std::optional<CapturedLog> log{std::in_place};
  CheckpointerOptions options = volume.options();
  MemorySource source;
  Announcer announcer;
  CallingPartners partners;
  std::atomic<bool> evaluates{false};
  std::atomic<int> commits{0};
  std::optional<internal::Run> run;
  std::optional<NoticeListener> listener;
};

TEST_F(NoticeListenerTest, ReportsEachNoticeToTheLedgerAndTheRanks) {
  start();
  announcer.deadline(volume.clock.now() + 120s);
  EXPECT_TRUE(run->monitor.pending());
  EXPECT_EQ(partners.told, 1);
  announcer.withdraw();
  EXPECT_EQ(partners.told, 2);
  const auto lines = ledger();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_THAT(lines[0], HasSubstr("the end is near"));
  EXPECT_THAT(lines[1], HasSubstr("never mind"));
}

TEST_F(NoticeListenerTest, OneRankSaysWhichGraceIsGuessedInAContainer) {
  setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1", 1);
  options.notices.hear_signals = true;
  start();
  EXPECT_THAT(log->text(), HasSubstr("10 s from SIGTERM to SIGKILL are assumed; HOLDFAST_TERM_GRACE sets"));
  listener->stop();
  log.emplace();
  partners.rank = 1;
  start();
  EXPECT_THAT(log->text(), testing::Not(HasSubstr("SIGKILL")));
  listener->stop();
  log.emplace();
  partners.rank = 0;
  options.notices.term_grace = 40s;  // no guess
  start();
  EXPECT_THAT(log->text(), testing::Not(HasSubstr("SIGKILL")));
  unsetenv("KUBERNETES_SERVICE_HOST");
}

TEST_F(NoticeListenerTest, CommitsAnEvaluationForANoticeWithoutTheTraining) {
  start();
  EXPECT_EQ(commits, 0);
  announcer.deadline(volume.clock.now() + 120s);
  EXPECT_TRUE(soon([&] { return commits > 0; }));
}

TEST_F(NoticeListenerTest, CommitsAnEvaluationForTheCallOfAnotherRank) {
  start();
  evaluates = true;
  listener->wake();
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(commits, 0) << "nobody has called";
  partners.calls = true;
  EXPECT_TRUE(soon([&] { return commits > 0; }));
}

TEST_F(NoticeListenerTest, RunsTheCommandForAMachineAtRiskAndForNothingElse) {
  const TemporaryFolder folder;
  const std::filesystem::path made = folder.path() / "made";
  options.notices.on_risk = "echo \"$HOLDFAST_REASON\" >>'" + made.string() + "'";
  start();
  announcer.deadline(volume.clock.now() + 120s);
  announcer.withdraw();
  announcer.risk();
  EXPECT_TRUE(soon([&] { return std::filesystem::exists(made) && std::filesystem::file_size(made) > 0; }));
  std::this_thread::sleep_for(250ms);  // another command would have begun earlier
  const std::string lines = read_text(made);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1) << lines;
}

TEST_F(NoticeListenerTest, WarnsIfTheTrainingDoesNotLookAtANotice) {
  options.notices.deaf_after = 10s;
  start();
  const auto silent_for = [&](Duration time) {
    volume.clock.advance(time);
    std::this_thread::sleep_for(250ms);
    std::string text = log->text();
    log.emplace();
    return text.find("the end is near") != std::string::npos && text.find("deaf") != std::string::npos;
  };
  listener->begin();
  announcer.deadline(volume.clock.now() + 120s);
  log->text();
  log.emplace();
  EXPECT_FALSE(silent_for(5s)) << "it may be in the middle of a step";
  listener->heard();
  EXPECT_FALSE(silent_for(8s)) << "it has looked since";
  bool warned = false;
  EXPECT_TRUE(soon([&] { return warned = warned || silent_for(1s); }));
}

TEST_F(NoticeListenerTest, TellsNothingAfterTheStop) {
  start();
  listener->stop();
  run->monitor.post({.source = "test", .kind = NoticeKind::deadline, .deadline = volume.clock.now() + 60s});
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(commits, 0) << "the watch is over";
}

}}  // namespace holdfast::test
