// Who is lost, from signs of life alone.
#include "holdfast/ranks/signs_of_life.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "holdfast/ranks/pulse.h"
#include "support/french_numbers.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

Tale silence_of(std::map<int, int> silent, int announced = 0) {
  return {.silent = std::move(silent), .announced = announced};
}

TEST(SignTable, CountsThePollsWithoutANewSign) {
  SignTable table(3, 4);
  EXPECT_THAT(table.poll({"1", "1", "1"}).silent, IsEmpty());
  EXPECT_THAT(table.poll({"2", "1", "2"}).silent, ElementsAre(Pair(1, 1)));
  EXPECT_THAT(table.poll({"2", "1", "3"}).silent, ElementsAre(Pair(1, 2))) << "rank 0 does not judge itself";
  EXPECT_THAT(table.poll({"2", "7", "3"}).silent, ElementsAre(Pair(2, 1)));
  const Tale announced = table.poll({"3", std::to_string(sign_of(8, 20, true)), "3"});
  EXPECT_EQ(announced.announced, 20);
  EXPECT_TRUE(announced.called);
  EXPECT_THAT(announced.silent, IsEmpty());
}

TEST(Tale, ComesBackFromItsText) {
  const Tale tale = tale_of(text_of(silence_of({{3, 1}, {900, 12}}, 5), 77));
  EXPECT_THAT(tale.silent, ElementsAre(Pair(3, 1), Pair(900, 12)));
  EXPECT_EQ(tale.announced, 5);
}

TEST(Tale, ComesBackWhereAProgramsLocaleGroupsDigitsBySpaces) {
  const test::FrenchNumbers locale;
  const Tale tale = tale_of(text_of(silence_of({{3, 1}, {900, 12}}, 5), 77));
  EXPECT_THAT(tale.silent, ElementsAre(Pair(3, 1), Pair(900, 12)));
  EXPECT_EQ(tale.announced, 5);
}

// A host that stands still for a while when another one vanishes.
TEST(SilenceJudge, NamesNobodyThatWasSilentForLess) {
  SilenceJudge judge(1, 6);
  judge.learn(silence_of({{3, 6}, {4, 5}, {5, 4}}));
  EXPECT_FALSE(judge.poll(false)) << "others of its host may be one poll behind";
  judge.learn(silence_of({{3, 7}, {4, 6}, {5, 5}}));
  EXPECT_TRUE(judge.poll(false));
  EXPECT_THAT(judge.lost(), ElementsAre(3, 4));
  EXPECT_FALSE(judge.store_is_lost());
  judge.learn(silence_of({{5, 12}}));
  EXPECT_FALSE(judge.poll(false)) << "the first verdict holds";
  EXPECT_TRUE(judge.fell_silent(5));
}

TEST(SilenceJudge, RankZeroActsAfterItHasToldTheOthers) {
  SilenceJudge judge(0, 6);
  judge.learn(silence_of({{3, 8}}));
  EXPECT_FALSE(judge.poll(false));
  judge.learn(silence_of({{3, 9}}));
  EXPECT_TRUE(judge.poll(false));
}

TEST(SilenceJudge, WaitsLongerForARankZeroThatAnswersLessOften) {
  const auto polls = [](int tale_every) {
    SilenceJudge judge(1, 6, tale_every);
    judge.learn({});
    judge.poll(false);
    int count = 1;
    while (!judge.poll(false)) ++count;
    EXPECT_THAT(judge.lost(), ElementsAre(0));
    return count;
  };
  EXPECT_EQ(polls(1), 6);
  EXPECT_EQ(polls(2), 8);
}

TEST(PulseOptions, FewerSignsInALargeWorld) {
  EXPECT_EQ(pulse_options(512, 6s).period, 500ms);
  EXPECT_EQ(pulse_options(512, 6s).looks, 12);
  EXPECT_EQ(pulse_options(512, 6s).answer_every, 1);
  EXPECT_EQ(pulse_options(1024, 6s).period, 1s);
  EXPECT_EQ(pulse_options(1024, 6s).looks, 6);
  EXPECT_EQ(pulse_options(1024, 6s).answer_every, 2);
  EXPECT_EQ(pulse_options(100'000, 6s).period, 2s);
  EXPECT_EQ(pulse_options(100'000, 6s).looks, 6) << "so silence is 12 s";
  EXPECT_EQ(pulse_options(2, 1ms).looks, 1);
}

}}  // namespace holdfast
