// What befalls one rank of two while all go on: its disk fails or is full, it evaluates alone, it is told to
// stop in the last step, it is still writing when the next save falls due, it leaves its loop before the
// others do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "dist/ranks.h"
#include "support/loop_volume.h"
#include "support/nightly.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

constexpr int kSteps = 30;
// Enough for a failure and its end to reach all by two votes, which are a second apart, on a busy machine too.
constexpr int kStepsOfManyVotes = 150;

// By day one of the two.
std::vector<const char*> ranks_in_turn(const char* by_day) {
  return nightly() ? std::vector{"0", "1"} : std::vector{by_day};
}

class Trouble : public testing::Test {
 protected:
  Words story_in(const std::string& run, const Words& more = {}, int steps = kSteps) const {
    Words given = {"every=4", "pause=10"};
    given.insert(given.end(), more.begin(), more.end());
    return story(folder_.path() / run, steps, given);
  }
  Words undisturbed(const Words& more = {}, int steps = kSteps) const {
    const Ended ended = launch(2, story_in("undisturbed", more, steps));
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return said(ended, 2, "state");
  }
  // The last save stands, and is what was to be.
  void stands(const std::filesystem::path& run, const Ended& ended, const Words& end) const {
    EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
    EXPECT_EQ(said(ended, 2, "state"), end) << ended.err;
    int count = 0;
    EXPECT_EQ(not_whole(run, &count), "");
    EXPECT_GT(count, 0);
  }
  TemporaryFolder folder_;
};

// Two writes in the middle of the run fail, rank 0's.
TEST_F(Trouble, ADiskThatFailsRankZeroIsToldToAllAndTheTrainingGoesOn) {
  const auto run = folder_.path() / "run";
  const std::string inject = "inject=pwrite64,pwritev,pwritev2:error=EIO:when=6..8";
  const Words traced = {
      "/bin/sh", "-c",
      "if [ $RANK = 0 ]; then exec strace -f -qq -o /dev/null -e trace=pwrite64,pwritev,pwritev2 "
      "-e \"$0\" \"$@\"; fi; exec \"$@\"",
      inject};
  Words command = traced;
  for (const std::string& word : story_in("run", {"pause=60"}, kStepsOfManyVotes)) command.push_back(word);
  if (Subprocess({"/bin/sh", "-c", "strace -f -qq -o /dev/null -e " + inject + " true"}).wait().exit_code !=
      0) {
    GTEST_SKIP() << "strace (5.16 or newer) cannot trace here";
  }
  const Ended ended = launch(2, command);
  stands(run, ended, undisturbed({}, kStepsOfManyVotes));
  EXPECT_THAT(said(ended, 2, "failing"), SizeIs(2)) << ended.out << ended.err;
  EXPECT_THAT(said(ended, 2, "failing")[0], HasSubstr("Input/output error"));
  EXPECT_THAT(said(ended, 2, "failing")[1], HasSubstr("rank 0's last save failed"));
  EXPECT_THAT(said(ended, 2, "well"), SizeIs(2)) << ended.out;
}

TEST_F(Trouble, AFullVolumeOfRankZeroIsToldToAllAndTheNextSaveStands) {
  const std::string why_not = LoopVolume::why_not(VolumeKind::ext4);
  if (!why_not.empty()) GTEST_SKIP() << why_not;
  LoopVolume volume({.kind = VolumeKind::ext4});
  const auto run = volume.path() / "run";
  const Words more = {"every=4", "pause=50", "floats=2000000", "keep=2"};
  Words given = more;
  given.emplace_back("at=wait:0:6");
  const Meeting meeting;
  const Words command = story(run, kSteps, given);
  Subprocess first(command, meeting.of_rank(0));
  Subprocess second(command, meeting.of_rank(1));
  ASSERT_TRUE(first.wait_until([&] { return first.out().find("now ") != std::string::npos; })) << first.err();
  {
    const Ballast ballast(volume.path(), 1 << 20);
    write_text(run.string() + ".go", "");
    for (Subprocess* const rank : {&first, &second}) {
      EXPECT_TRUE(rank->wait_until([&] { return rank->out().find("failing ") != std::string::npos; }))
          << rank->out() << rank->err();
    }
  }
  const Ended ended = first.wait(2min);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(said_alone(ended, "failing")[0], HasSubstr("No space left"));
  const Ended other = second.wait(2min);
  EXPECT_EQ(other.exit_code, 0) << other.err;
  const Ended whole = launch(2, story(folder_.path() / "undisturbed", kSteps, more));
  EXPECT_THAT(said(whole, 2, "state"),
              ElementsAre(said_alone(ended, "state")[0], said_alone(other, "state")[0]));
  EXPECT_EQ(not_whole(run), "");
}

TEST_F(Trouble, AnEvaluationOnOneRankAloneDividesNobody) {
  const Words end = undisturbed();
  for (const char* const rank : ranks_in_turn("0")) {
    const std::string run = std::string("run") + rank;
    const Ended ended = launch(2, story_in(run, {"at=evaluate:" + std::string(rank) + ":9", "silence=2"}));
    stands(folder_.path() / run, ended, end);
  }
}

TEST_F(Trouble, ASignalInTheLastStepIsEverybodys) {
  const Words end = undisturbed();
  for (const char* const rank : ranks_in_turn("1")) {
    const std::string run = std::string("run") + rank;
    const Ended ended =
        launch(2, story_in(run, {"at=term:" + std::string(rank) + ":" + std::to_string(kSteps)}));
    EXPECT_EQ(ended.exit_code, 75) << ended.err;
    EXPECT_EQ(said(ended, 2, "state"), end);
    const Ended next = launch(2, story_in(run));
    EXPECT_EQ(next.exit_code, 0) << next.err;
    EXPECT_THAT(said(next, 2, "resumed"), AllOf(SizeIs(2), Each(std::to_string(kSteps) + " exact")));
    EXPECT_EQ(said(next, 2, "state"), end);
  }
}

// 16 MB at 40 MB/s are many steps; a save is asked for at each.
TEST_F(Trouble, NoSaveBeginsBeforeTheLastIsWritten) {
  const Words more = {"floats=4000000", "every=1"};
  const Words end = undisturbed({"floats=4000000", "every=1000"});
  Words slow = more;
  slow.emplace_back("limit=40");
  const Ended ended = launch(2, story_in("run", slow));
  stands(folder_.path() / "run", ended, end);
  const Words saved = said(ended, 2, "saved");
  EXPECT_GE(saved.size(), 2U) << ended.out;
  EXPECT_LT(saved.size(), 20U) << "all of them were begun";
  for (std::size_t i = 0; i < saved.size() / 2; ++i) EXPECT_EQ(saved[i], saved[i + saved.size() / 2]);
}

TEST_F(Trouble, RanksThatCountDifferentlyAreNamed) {
  for (const char* const rank : ranks_in_turn("0")) {
    const Ended ended =
        launch(2, story_in(std::string("run") + rank, {"apart=1", "at=leave:" + std::string(rank) + ":9"}));
    EXPECT_NE(ended.exit_code, 0);
    EXPECT_NE(ended.exit_code, 75) << "starting again would not mend it";
    EXPECT_THAT(ended.err, HasSubstr("the ranks have taken different numbers of steps: rank"));
    EXPECT_EQ(not_whole(folder_.path() / ("run" + std::string(rank))), "");
  }
}

// By its own cost, not by the group's patience of five minutes.
TEST_F(Trouble, WhileAnEndIsAnnouncedALostRankIsWaitedForATenthOfTheTimeLeft) {
  const auto notice = folder_.path() / "notice";
  const auto run = folder_.path() / "run";
  const Meeting meeting;
  const Words command = story_in("run", {"apart=1", "timeout=300", "silence=60", "at=wait:0:12"});
  auto hears = meeting.of_rank(0);
  hears["HOLDFAST_NOTICE_FILE"] = notice.string();
  hears["HOLDFAST_SOURCES"] = "signal,file,deadline";
  Subprocess first(command, hears);
  Subprocess second(command, meeting.of_rank(1));
  ASSERT_TRUE(first.wait_until([&] { return first.out().find("now ") != std::string::npos; })) << first.err();
  second.send(SIGSTOP);
  write_text(notice, "{\"action\": \"terminate\", \"in_seconds\": 60}");
  std::this_thread::sleep_for(1s);
  const auto began = std::chrono::steady_clock::now();
  write_text(run.string() + ".go", "");
  const Ended ended = first.wait(2min);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  std::printf("a lost rank: noticed and over in %.1f s of 60\n", took.count());
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_THAT(ended.err,
              testing::ContainsRegex("rank 1 died, hangs or cannot be reached|no answer came from rank 1 "));
  EXPECT_LT(took.count(), 100);
  EXPECT_EQ(not_whole(run), "");
}

// A machine that its cloud freezes for half a minute is not lost. The program itself says two seconds.
TEST_F(Trouble, AFrozenRankIsWaitedForAsLongAsTheEnvironmentSays) {
  const auto run = folder_.path() / "run";
  const Meeting meeting;
  const Words command = story_in("run", {"timeout=300", "silence=2", "at=wait:0:12"});
  Environment places[] = {meeting.of_rank(0), meeting.of_rank(1)};
  for (Environment& place : places) place["HOLDFAST_SILENCE"] = "4min";
  Subprocess first(command, places[0]);
  Subprocess frozen(command, places[1]);
  ASSERT_TRUE(first.wait_until([&] { return first.out().find("now ") != std::string::npos; })) << first.err();
  frozen.send(SIGSTOP);
  write_text(run.string() + ".go", "");
  std::this_thread::sleep_for(15s);
  EXPECT_TRUE(first.running()) << first.err();
  frozen.send(SIGCONT);
  for (Subprocess* const rank : {&first, &frozen}) {
    const Ended ended = rank->wait(2min);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
  }
}

}}  // namespace holdfast::test
