#include "holdfast/interruption/notice_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>

#include "holdfast/interruption/internal/risk_hook.h"
#include "support/captured_log.h"
#include "support/child_process.h"
#include "support/fake_clock.h"
#include "support/gate.h"
#include "support/soon.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;

struct Watched {
  FakeClock clock;
  std::atomic<bool> pending{false};
  std::atomic<int> looks{0};
  std::atomic<int> said{0};
  internal::NoticeWatch watch{clock,
                              {.pending = [this] { return pending.load(); },
                               .respond = [this] { ++looks; },
                               .patience = [] { return Duration(10s); },
                               .what =
                                   [this] {
                                     ++said;
                                     return std::string("the end is near");
                                   }}};
  void notice(const std::string& command = {}) {
    pending = true;
    watch.wake({.text = command});
    await_look();
  }
  void await_look() {
    const int before = looks;
    EXPECT_TRUE(soon([&] { return looks >= before + 2; }));
  }
};

TEST(NoticeWatch, SaysOnceThatNobodyComesToLook) {
  CapturedLog log;
  Watched run;
  run.watch.begin();
  run.notice();
  run.clock.advance(9s);
  run.await_look();
  EXPECT_EQ(run.said, 0);
  run.clock.advance(2s);
  run.await_look();
  run.clock.advance(60s);
  run.await_look();
  EXPECT_EQ(run.said, 1);
  run.watch.heard();
  run.clock.advance(11s);
  run.await_look();
  EXPECT_EQ(run.said, 2) << "deaf again";
  EXPECT_THAT(log.text(),
              testing::HasSubstr("deaf for 11s: the end is near, and neither after_step() nor tick()"));
}

TEST(NoticeWatch, ATrainingThatLooksIsNotDeaf) {
  Watched run;
  run.watch.begin();
  run.notice();
  for (int i = 0; i < 4; ++i) {
    run.clock.advance(9s);
    run.watch.heard();
    run.await_look();
  }
  EXPECT_EQ(run.said, 0);
}

TEST(NoticeWatch, SilenceCountsFromTheNotice) {
  Watched run;
  run.watch.begin();
  run.clock.advance(1h);
  run.notice();
  run.clock.advance(9s);
  run.await_look();
  EXPECT_EQ(run.said, 0);
}

TEST(NoticeWatch, NobodyIsExpectedBeforeTheRunBeginsAndAfterItsEnd) {
  Watched run;
  run.notice();
  run.clock.advance(1h);
  run.await_look();
  run.watch.begin();
  run.watch.end();
  run.clock.advance(1h);
  run.await_look();
  EXPECT_EQ(run.said, 0);
}

TEST(RiskHook, SaysHowACommandEnded) {
  CapturedLog log;
  TemporaryFolder folder;
  const auto sign = folder.path() / "sign";
  internal::RiskHook hook;
  EXPECT_FALSE(hook.reap());
  for (const std::string command : {"exit 3", "kill -9 $$", "true"}) hook.start({.text = command});
  hook.start({.text = "cat && touch " + sign.native()});  // standard input is empty
  EXPECT_TRUE(soon([&] { return !hook.reap(); }));
  EXPECT_TRUE(std::filesystem::exists(sign));
  const std::string text = log.text();
  EXPECT_THAT(text, testing::HasSubstr("ended with code 3"));
  EXPECT_THAT(text, testing::HasSubstr("was ended by signal 9"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
}

// The reader of the training's log has ended: what the command prints must not end it.
TEST(RiskHook, ACommandThatPrintsNeedsNoReader) {
  TemporaryFolder folder;
  const auto sign = folder.path() / "sign";
  const std::string text = "/bin/echo said && /bin/echo said >&2 && touch " + sign.native();
  ChildProcess child([&] {
    int ends[2];
    if (pipe(ends) != 0 || close(ends[0]) != 0) return 1;
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) dup2(ends[1], stream);
    close(ends[1]);
    std::signal(SIGPIPE, SIG_IGN);  // as in every training
    internal::RiskHook hook;
    hook.start({.text = text});
    return soon([&] { return !hook.reap(); }) ? 0 : 2;
  });
  EXPECT_EQ(child.wait().exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(sign));
}

}}  // namespace holdfast::test
