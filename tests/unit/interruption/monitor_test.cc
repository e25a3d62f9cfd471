#include "holdfast/interruption/monitor.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <stdexcept>
#include <thread>

#include "support/fake_clock.h"
#include "support/notice_heard.h"
#include "support/soon.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;
using test::FakeClock;
using test::soon;

Notice stop_notice(std::string text) {
  return {.source = "test", .kind = NoticeKind::stop, .deadline = {}, .text = std::move(text)};
}
Notice checkpoint_notice() {
  return {.source = "test", .kind = NoticeKind::checkpoint_now, .deadline = {}, .text = "please"};
}
Notice deadline_notice(SteadyTime when) {
  return {.source = "test", .kind = NoticeKind::deadline, .deadline = when, .text = "machine goes away"};
}

// Tells what it was given, when it was given.
struct Script {
  std::mutex mutex;
  std::deque<Notice> news;
  int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  std::atomic<int> polls{0};
  std::atomic<bool> fail{false};
  std::atomic<bool> cancelled{false};
  ~Script() { close(event); }

  void tell(Notice notice) {
    {
      const std::lock_guard lock(mutex);
      news.push_back(std::move(notice));
    }
    eventfd_write(event, 1);
  }
};

class ScriptedSource : public Source {
 public:
  ScriptedSource(Script& script, Duration interval, bool wakes, bool blocks = false)
      : script_(script), interval_(interval), wakes_(wakes), blocks_(blocks) {}

  std::string_view name() const override { return "script"; }
  Duration interval() const override { return interval_; }
  int wake_descriptor() const override { return wakes_ ? script_.event : -1; }
  bool may_block() const override { return blocks_; }
  void cancel() override { script_.cancelled = true; }
  std::vector<Notice> poll() override {
    ++script_.polls;
    if (script_.fail) throw std::runtime_error("broken");
    while (blocks_ && !script_.cancelled) std::this_thread::sleep_for(1ms);
    eventfd_t ignored = 0;
    eventfd_read(script_.event, &ignored);
    const std::lock_guard lock(script_.mutex);
    std::vector<Notice> told(script_.news.begin(), script_.news.end());
    script_.news.clear();
    return told;
  }

 private:
  Script& script_;
  Duration interval_;
  bool wakes_;
  bool blocks_;
};

TEST(Monitor, NothingIsPendingAtFirst) {
  Monitor monitor;
  monitor.start();
  EXPECT_FALSE(monitor.pending());
  EXPECT_FALSE(monitor.stop_requested());
  EXPECT_FALSE(monitor.take_checkpoint_request());
  EXPECT_EQ(monitor.deadline(), std::nullopt);
  EXPECT_EQ(monitor.time_left(), std::nullopt);
  EXPECT_EQ(monitor.reason(), "");
  EXPECT_FALSE(test::heard(monitor));
}

TEST(Monitor, WhatASourceKnowsAtTheStartIsSeenWhenStartReturns) {
  Script script;
  script.tell(stop_notice("early"));
  Monitor monitor;
  monitor.add(std::make_unique<ScriptedSource>(script, 1h, false));
  monitor.start();
  EXPECT_TRUE(monitor.stop_requested());
  EXPECT_EQ(monitor.reason(), "early");
}

Notice withdrawal(std::string source = "test") {
  return {.source = std::move(source), .kind = NoticeKind::withdrawn, .deadline = {}, .text = "never mind"};
}
Notice from(const char* source, SteadyTime deadline) {
  Notice notice = deadline_notice(deadline);
  notice.source = source;
  notice.text = std::string(source) + " says so";
  return notice;
}

TEST(Monitor, AWithdrawalTakesBackTheDeadlineOfItsSource) {
  FakeClock clock;
  Monitor monitor(clock);
  const SteadyTime now = clock.now();
  monitor.post(from("ec2", now + 100s));
  monitor.post(from("file", now + 200s));
  EXPECT_EQ(monitor.reason(), "ec2 says so");
  monitor.post(withdrawal("ec2"));
  EXPECT_EQ(monitor.deadline(), now + 200s);
  EXPECT_EQ(monitor.reason(), "file says so");
  EXPECT_TRUE(monitor.pending());
  monitor.post(withdrawal("file"));
  EXPECT_EQ(monitor.deadline(), std::nullopt);
  EXPECT_EQ(monitor.reason(), "");
  EXPECT_FALSE(monitor.pending());
  EXPECT_EQ(monitor.standing(), std::nullopt);
  EXPECT_EQ(monitor.notices().size(), 4U);
  monitor.post(from("ec2", now + 300s));
  EXPECT_EQ(monitor.deadline(), now + 300s) << "it may come again";
}

TEST(Monitor, OfOneSourceANamedTimeCountsMoreThanAGuess) {
  FakeClock clock;
  Monitor monitor(clock);
  const SteadyTime now = clock.now();
  Notice guess = from("file", now + 100s);
  guess.guessed = true;
  monitor.post(guess);
  monitor.post(from("file", now + 300s));
  EXPECT_EQ(monitor.deadline(), now + 300s);
  EXPECT_EQ(monitor.named_deadline(), now + 300s);
  monitor.post(guess);
  EXPECT_EQ(monitor.deadline(), now + 300s) << "a guess changes nothing about a named time";
  monitor.post(from("file", now + 400s));
  EXPECT_EQ(monitor.deadline(), now + 300s) << "of two named times the earlier counts";
}

// The machine has outlived the first, and nobody has dismissed it yet.
TEST(Monitor, ATimeThatHasPassedHidesNoLaterOneOfItsSource) {
  FakeClock clock;
  Monitor monitor(clock);
  const SteadyTime now = clock.now();
  monitor.post(from("file", now + 100s));
  clock.advance(110s);
  Notice later = from("file", now + 300s);
  later.text = "file says it again";
  monitor.post(later);
  EXPECT_EQ(monitor.deadline(), now + 300s);
  EXPECT_EQ(monitor.named_deadline(), now + 300s);
  EXPECT_EQ(monitor.reason(), "file says it again");
}

TEST(Monitor, TwoSourcesOfOneNameAreTwo) {
  FakeClock clock;
  Script first;
  Script second;
  Monitor monitor(clock);
  monitor.add(std::make_unique<ScriptedSource>(first, 1h, true));
  monitor.add(std::make_unique<ScriptedSource>(second, 1h, true));
  first.tell(deadline_notice(clock.now() + 100s));
  second.tell(deadline_notice(clock.now() + 200s));
  monitor.start();
  first.tell(withdrawal());
  EXPECT_TRUE(soon([&] { return monitor.notices().size() == 3; }));
  EXPECT_EQ(monitor.deadline(), clock.now() + 200s);
}

TEST(Monitor, AWithdrawalChangesNothingAboutAStop) {
  FakeClock clock;
  Monitor monitor(clock);
  monitor.post(stop_notice("SIGTERM"));
  monitor.post(withdrawal());
  EXPECT_TRUE(monitor.stop_requested());
  EXPECT_EQ(monitor.reason(), "SIGTERM");
}

TEST(Monitor, ADeadlineThatNobodyNamesIs110SecondsAway) {
  FakeClock clock;
  Monitor monitor(clock);
  Notice notice = deadline_notice(clock.now());
  notice.deadline.reset();
  testing::internal::CaptureStderr();
  monitor.post(notice);
  EXPECT_EQ(
      testing::internal::GetCapturedStderr(),
      "holdfast: notice (test): machine goes away, 1m 50s left (no deadline given; this one is assumed)\n");
  EXPECT_EQ(monitor.deadline(), clock.now() + 110s);
  clock.advance(10s);
  monitor.post(notice);
  EXPECT_EQ(monitor.time_left(), Duration(100s)) << "told again, it is no later";
}

TEST(Monitor, NotesWhenANoticeWasFirstSeen) {
  FakeClock clock;
  Monitor monitor(clock);
  const SteadyTime now = clock.now();
  monitor.post(deadline_notice(now + 120s));
  EXPECT_EQ(monitor.standing()->seen, now);
  clock.advance(5s);
  monitor.post(deadline_notice(now + 100s));
  EXPECT_EQ(monitor.standing()->seen, now);
  EXPECT_EQ(monitor.standing()->deadline, now + 100s);
}

TEST(Monitor, ADismissedDeadlineIsNotHeardAgainAndALaterOneIs) {
  FakeClock clock;
  Monitor monitor(clock);
  const SteadyTime then = clock.now() + 30s;
  Notice news = deadline_notice(then);
  news.seen = clock.now();
  monitor.post(news);
  clock.advance(90s);
  monitor.dismiss(clock.now() - 60s);
  EXPECT_FALSE(monitor.pending());
  EXPECT_EQ(monitor.deadline(), std::nullopt);
  monitor.post(deadline_notice(then));
  EXPECT_FALSE(monitor.pending()) << "no later than what was dismissed";
  news.deadline = clock.now() + 110s;
  monitor.post(news);
  EXPECT_FALSE(monitor.pending()) << "first seen when the dismissed one was: a time that slides";
  monitor.post(deadline_notice(clock.now() + 120s));
  EXPECT_TRUE(monitor.pending());
  EXPECT_EQ(monitor.time_left(), Duration(120s));
}

TEST(Monitor, AnEndIsNewsAfterASleepThatIsOver) {
  FakeClock clock;
  Monitor monitor(clock);
  const SteadyTime then = clock.now() + 100s;
  Notice news = deadline_notice(then);
  news.hibernates = true;
  news.seen = clock.now();
  monitor.post(news);
  clock.advance(10s);
  monitor.dismiss(clock.now() - 60s, true);
  news.seen = clock.now();
  monitor.post(news);
  EXPECT_FALSE(monitor.pending()) << "no later than what was dismissed";
  news.hibernates = false;
  monitor.post(news);
  EXPECT_TRUE(monitor.pending()) << "this time it does not wake up";
  EXPECT_FALSE(monitor.standing()->hibernates);
  EXPECT_EQ(monitor.time_left(), Duration(90s));
}

TEST(Monitor, DismissingLeavesLaterDeadlinesAlone) {
  FakeClock clock;
  Monitor monitor(clock);
  monitor.post(from("ec2", clock.now() + 30s));
  monitor.post(from("slurm", clock.now() + 300s));
  clock.advance(90s);
  monitor.dismiss(clock.now() - 60s);
  EXPECT_EQ(monitor.time_left(), Duration(210s));
  EXPECT_EQ(monitor.reason(), "slurm says so");
}

TEST(Monitor, ThePlannerGoesByWhatEndsTheMachineBeforeWhatPutsItToSleep) {
  FakeClock clock;
  Monitor monitor(clock);
  Notice sleep = from("ec2", clock.now() + 30s);
  sleep.hibernates = true;
  monitor.post(sleep);
  EXPECT_TRUE(monitor.standing()->hibernates);
  monitor.post(from("slurm", clock.now() + 300s));
  EXPECT_FALSE(monitor.standing()->hibernates);
  monitor.dismiss(clock.now(), true);
  EXPECT_EQ(monitor.time_left(), Duration(300s)) << "awake again";
}

TEST(Monitor, AStopAfterADeadlineThatPassedHasItsOwnTime) {
  FakeClock clock;
  Monitor monitor(clock);
  Notice stop = stop_notice("SIGTERM");
  monitor.post(deadline_notice(clock.now() + 10s));
  clock.advance(20s);
  stop.deadline = clock.now() + 25s;
  monitor.post(stop);
  EXPECT_EQ(monitor.time_left(), Duration(25s));
  monitor.post(from("ec2", clock.now() + 15s));
  EXPECT_EQ(monitor.time_left(), Duration(15s)) << "one to come counts";
}

TEST(Monitor, ARiskIsTakenOnce) {
  Monitor monitor;
  Notice risk = checkpoint_notice();
  risk.kind = NoticeKind::at_risk;
  monitor.post(risk);
  monitor.post(risk);
  EXPECT_TRUE(monitor.pending());
  EXPECT_FALSE(monitor.take_checkpoint_request());
  EXPECT_TRUE(monitor.take_risk());
  EXPECT_FALSE(monitor.take_risk());
  EXPECT_FALSE(monitor.pending());
}

TEST(Monitor, TheEarliestDeadlineOfASourceStays) {
  FakeClock clock;
  Monitor monitor(clock);
  const SteadyTime now = clock.now();
  monitor.post(deadline_notice(now + 120s));
  monitor.post(deadline_notice(now + 90s));
  monitor.post(deadline_notice(now + 300s));
  EXPECT_EQ(monitor.deadline(), now + 90s);
  clock.advance(30s);
  EXPECT_EQ(monitor.time_left(), Duration(60s));
  clock.advance(100s);
  EXPECT_EQ(monitor.time_left(), Duration(0s));
  EXPECT_TRUE(monitor.pending());
  EXPECT_FALSE(monitor.stop_requested());
  EXPECT_EQ(monitor.reason(), "machine goes away");
}

TEST(Monitor, StopIsLatchedAndNamesTheFirstReason) {
  FakeClock clock;
  Monitor monitor(clock);
  monitor.post(deadline_notice(clock.now() + 120s));
  monitor.post(stop_notice("SIGTERM"));
  monitor.post(stop_notice("SIGINT"));
  EXPECT_TRUE(monitor.stop_requested());
  EXPECT_EQ(monitor.reason(), "SIGTERM");
  EXPECT_EQ(monitor.notices().size(), 3u);
  monitor.stop();
  EXPECT_TRUE(monitor.stop_requested());
}

TEST(Monitor, ACheckpointRequestIsTakenOnce) {
  Monitor monitor;
  monitor.post(checkpoint_notice());
  monitor.post(checkpoint_notice());
  EXPECT_TRUE(monitor.pending());
  EXPECT_TRUE(monitor.take_checkpoint_request());
  EXPECT_FALSE(monitor.take_checkpoint_request());
  EXPECT_FALSE(monitor.pending());
  EXPECT_TRUE(monitor.notices().empty());
  monitor.post(checkpoint_notice());
  EXPECT_TRUE(monitor.take_checkpoint_request());
}

TEST(Monitor, AWakingSourceIsPolledAtOnce) {
  Script script;
  Monitor monitor;
  monitor.add(std::make_unique<ScriptedSource>(script, 1h, true));
  monitor.start();
  EXPECT_FALSE(monitor.pending());
  script.tell(stop_notice("now"));
  EXPECT_TRUE(test::heard_soon(monitor));
  EXPECT_TRUE(monitor.stop_requested());
}

TEST(Monitor, OtherSourcesArePolledAtTheirInterval) {
  Script script;
  Monitor monitor;
  monitor.add(std::make_unique<ScriptedSource>(script, 2ms, false));
  monitor.start();
  EXPECT_TRUE(soon([&] { return script.polls >= 5; }));
  script.tell(checkpoint_notice());
  EXPECT_TRUE(soon([&] { return monitor.take_checkpoint_request(); }));
}

TEST(Monitor, ASourceThatHangsDelaysNobody) {
  Script hanging;
  Script quick;
  Monitor monitor;
  monitor.add(std::make_unique<ScriptedSource>(hanging, 1ms, false, true));
  monitor.add(std::make_unique<ScriptedSource>(quick, 1h, true));
  monitor.start();
  EXPECT_TRUE(soon([&] { return hanging.polls == 1; }));
  quick.tell(stop_notice("heard"));
  EXPECT_TRUE(test::heard_soon(monitor));
  const auto begin = std::chrono::steady_clock::now();
  monitor.stop();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s);
  EXPECT_TRUE(hanging.cancelled);
}

TEST(Monitor, ASourceThatThrowsIsSwitchedOffAlone) {
  Script broken;
  Script good;
  broken.fail = true;
  Monitor monitor;
  monitor.add(std::make_unique<ScriptedSource>(broken, 1ms, false));
  monitor.add(std::make_unique<ScriptedSource>(good, 1ms, false));
  testing::internal::CaptureStderr();
  monitor.start();
  EXPECT_TRUE(soon([&] { return good.polls >= 5; }));
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "holdfast: error: the interruption source \"script\" failed and is off: broken\n");
  EXPECT_EQ(broken.polls, 1);
  good.tell(stop_notice("heard"));
  EXPECT_TRUE(test::heard_soon(monitor));
}

// Its own listener may be gone before the monitor is.
TEST(Monitor, AStartThatFailsLeavesNoThreadBehind) {
  class Broken final : public ScriptedSource {
   public:
    using ScriptedSource::ScriptedSource;
    bool may_block() const override { throw std::runtime_error("broken"); }
  };
  FakeClock clock;
  Script first;
  Script second;
  Monitor monitor(clock);
  monitor.add(std::make_unique<ScriptedSource>(first, 1h, true));
  monitor.add(std::make_unique<Broken>(second, 1h, true));
  EXPECT_THROW(monitor.start(), std::runtime_error);
  EXPECT_TRUE(first.cancelled);
}

TEST(Monitor, ListenersSeeTheStateThatTheNoticeMade) {
  Script script;
  Monitor monitor;
  monitor.add(std::make_unique<ScriptedSource>(script, 1h, true));
  std::atomic<int> heard{0};
  std::atomic<int> at_once{0};
  std::atomic<bool> overlapped{false};
  monitor.listen([&](const Notice& notice) {
    if (at_once.fetch_add(1) != 0) overlapped = true;
    EXPECT_TRUE(monitor.pending());
    if (notice.kind == NoticeKind::stop) {
      EXPECT_TRUE(monitor.stop_requested());
    }
    std::this_thread::sleep_for(1ms);
    at_once.fetch_sub(1);
    ++heard;
  });
  monitor.start();
  {
    std::vector<std::jthread> threads;
    threads.reserve(3);
    for (int t = 0; t < 3; ++t) threads.emplace_back([&] { monitor.post(stop_notice("x")); });
  }
  script.tell(stop_notice("y"));
  EXPECT_TRUE(soon([&] { return heard == 4; }));
  EXPECT_FALSE(overlapped);
}

TEST(Monitor, EveryNoticeIsSaidOnce) {
  FakeClock clock;
  Monitor monitor(clock);
  testing::internal::CaptureStderr();
  monitor.post(deadline_notice(clock.now() + 80s));
  monitor.post(stop_notice("enough"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "holdfast: notice (test): machine goes away, 1m 20s left\nholdfast: notice (test): enough\n");
}

}}  // namespace holdfast
