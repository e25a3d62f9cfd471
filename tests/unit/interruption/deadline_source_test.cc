#include "holdfast/interruption/deadline_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

#include "holdfast/base/error.h"
#include "holdfast/base/system/machine.h"
#include "holdfast/interruption/monitor.h"
#include "support/fake_clock.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;
using test::FakeClock;
using testing::IsEmpty;
using testing::SizeIs;

std::int64_t seconds_of(WallTime time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
}

TEST(Deadline, TheEndOfTheWallTimeIsAnnouncedAndThenStops) {
  FakeClock clock;
  const SteadyTime started = clock.now();
  clock.advance(3min);  // it took so long to get here
  DeadlineSource source(clock, {.max_wall = 2h, .started = started});
  EXPECT_THAT(source.poll(), IsEmpty());
  clock.advance(1h + 46min);
  EXPECT_THAT(source.poll(), IsEmpty());
  clock.advance(1min);
  auto news = source.poll();
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].source, "deadline");
  EXPECT_EQ(news[0].kind, NoticeKind::deadline);
  EXPECT_EQ(news[0].deadline, started + 2h);
  clock.advance(9min);
  EXPECT_THAT(source.poll(), IsEmpty());
  clock.advance(58s);
  news = source.poll();
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].kind, NoticeKind::stop);
  EXPECT_EQ(news[0].deadline, started + 2h);
  clock.advance(1h);
  EXPECT_THAT(source.poll(), IsEmpty());
}

TEST(Deadline, AShortOneIsAnnouncedAtTheStart) {
  FakeClock clock;
  DeadlineSource source(clock, {.max_wall = 30s, .started = clock.now()});
  EXPECT_THAT(source.poll(), SizeIs(1));
  DeadlineSource over(clock, {.max_wall = 0s, .started = clock.now()});
  EXPECT_THAT(over.poll(), SizeIs(2)) << "announced and over";
}

TEST(Deadline, CountsFromTheStartOfTheProcess) {
  const auto age = process_age();
  ASSERT_TRUE(age);
  const SteadyTime now = Clock::real().now();
  DeadlineSource source(Clock::real(), {.max_wall = *age + 5min});
  const auto news = source.poll();
  ASSERT_THAT(news, SizeIs(1));
  // The age is known to a hundredth of a second, and some time went by since.
  EXPECT_LE(*news[0].deadline, now + 5min + 1s);
  EXPECT_GT(*news[0].deadline, now + 4min);
}

TEST(Deadline, ASlurmJobsEndIsAnnouncedAndStopsNothing) {
  FakeClock clock;
  DeadlineSource source(clock, {.job_end = clock.wall_now() + 1h});
  EXPECT_THAT(source.poll(), IsEmpty());
  clock.advance(51min);
  const auto news = source.poll();
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].kind, NoticeKind::deadline);
  EXPECT_EQ(news[0].deadline, clock.now() + 9min);
  clock.advance(1h);
  EXPECT_THAT(source.poll(), IsEmpty());
}

TEST(Deadline, ASignalAnnouncesTheEndAndThenItStops) {
  FakeClock clock;
  DeadlineSource source(clock, {.after_signal = 120s});
  EXPECT_THAT(source.poll(), IsEmpty());
  raise(SIGUSR1);
  auto news = source.poll();
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].source, "deadline");
  EXPECT_EQ(news[0].kind, NoticeKind::deadline);
  EXPECT_LE(*news[0].deadline, clock.now() + 120s);
  EXPECT_GT(*news[0].deadline, clock.now() + 100s);
  raise(SIGUSR1);  // it gains nothing
  clock.advance(100s);
  EXPECT_THAT(source.poll(), IsEmpty());
  clock.advance(19s);
  news = source.poll();
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].kind, NoticeKind::stop);
  EXPECT_THAT(source.poll(), IsEmpty());
}

TEST(Deadline, OfASignalAndTheWallTimeTheEarlierCounts) {
  FakeClock clock;
  DeadlineSource source(clock, {.max_wall = 30s, .started = clock.now(), .after_signal = 2h});
  raise(SIGUSR1);
  clock.advance(29s);
  const auto news = source.poll();
  ASSERT_THAT(news, SizeIs(2));
  EXPECT_EQ(news[1].kind, NoticeKind::stop);
  EXPECT_EQ(news[1].deadline, clock.now() + 1s);
}

TEST(Deadline, TheSignalsTimeIsThatOfItsVariable) {
  const auto with = [](const char* text, const char* stops = "") {
    setenv("HOLDFAST_DEADLINE_SIGNAL", text, 1);
    setenv("HOLDFAST_STOP_SIGNALS", stops, 1);
    std::optional<Duration> found;
    std::string refused;
    try {
      found = deadline_signal();
    } catch (const UsageError& error) {
      refused = error.what();
    }
    unsetenv("HOLDFAST_DEADLINE_SIGNAL");
    unsetenv("HOLDFAST_STOP_SIGNALS");
    return std::pair(found, refused);
  };
  EXPECT_EQ(with("").first, std::nullopt);
  EXPECT_EQ(with("USR1@120").first, 120s);
  EXPECT_EQ(with("SIGUSR1@5").first, 5s);
  for (const char* const text :
       {"USR1", "USR1@", "USR1@0", "USR1@-3", "USR2@120", "120", "USR1@2min", "B:USR1@120"}) {
    EXPECT_EQ(with(text).first, std::nullopt) << text;
    EXPECT_THAT(with(text).second, testing::HasSubstr("such as USR1@120")) << text;
  }
  EXPECT_THAT(with("USR1@120", "USR1").second, testing::HasSubstr("HOLDFAST_STOP_SIGNALS"));
}

// A Monitor keeps one deadline of a source.
TEST(Deadline, TheLaterEndIsAnnouncedWhenTheEarlierWasOutlived) {
  FakeClock clock;
  const SteadyTime wall_end = clock.now() + 9min;
  Monitor monitor(clock);
  DeadlineSource source(clock,
                        {.max_wall = 9min, .started = clock.now(), .job_end = clock.wall_now() + 5min});
  const auto poll = [&] {
    for (const Notice& notice : source.poll()) monitor.post(notice);
  };
  poll();
  ASSERT_TRUE(monitor.standing());
  EXPECT_EQ(monitor.standing()->deadline, clock.now() + 5min);
  clock.advance(6min);
  monitor.dismiss(clock.now() - 60s);  // the administrator gave the job more time
  poll();
  EXPECT_FALSE(monitor.standing());
  clock.advance(1s);
  poll();
  ASSERT_TRUE(monitor.standing());
  EXPECT_EQ(monitor.standing()->deadline, wall_end);
  EXPECT_THAT(source.poll(), IsEmpty());
  clock.advance(2min + 57s);
  poll();
  EXPECT_TRUE(monitor.stop_requested());
}

TEST(Deadline, SlurmsVariableIsBelievedWhenItNamesAMomentToCome) {
  FakeClock clock;
  const auto with = [&](const std::string& text) {
    setenv("SLURM_JOB_END_TIME", text.c_str(), 1);
    const auto end = slurm_job_end(clock);
    unsetenv("SLURM_JOB_END_TIME");
    return end;
  };
  EXPECT_EQ(slurm_job_end(clock), std::nullopt);
  EXPECT_EQ(with(std::to_string(seconds_of(clock.wall_now()) + 60)), clock.wall_now() + 60s);
  for (const char* const text : {"0", "-5", "1000000000", "soon", "Unknown", "99999999999", "1e9"}) {
    EXPECT_EQ(with(text), std::nullopt) << text;
  }
}

}}  // namespace holdfast
