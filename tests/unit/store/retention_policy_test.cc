// What the policies want to keep, each alone and combined.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "holdfast/base/error.h"
#include "holdfast/store/retention.h"
#include "support/fault_file_system.h"
#include "support/store_life.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Steps of attempt 1, the two newest verified.
RetentionView view_of(std::vector<std::int64_t> steps) {
  RetentionView view;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    view.present.push_back({.attempt = 1, .step = *step});
  }
  view.newest_acknowledged = view.present.at(0);
  view.trusted = {{view.present.at(0), true}, {view.present.at(1), true}};
  return view;
}

std::vector<std::int64_t> left(const RetentionView& view, const Retention& keep) {
  std::vector<std::int64_t> steps;
  for (const auto& [id, reason] : staying(view, keep)) steps.push_back(id.step);
  return steps;
}

void measure(RetentionView& view, const std::string& metric, std::int64_t step, double value) {
  view.facts[{.attempt = 1, .step = step}].metrics[metric] = value;
}

TEST(RetentionPolicies, AddUpWithAnOperator) {
  const StoreOptions one{.keep = KeepLast{3}};
  const StoreOptions many{.keep = KeepLast{3} | KeepEvery{10'000} |
                                  KeepBest{.metric = "test_accuracy", .count = 2, .better = Better::higher} |
                                  KeepNewer{24h}};
  EXPECT_EQ(one.keep.policies().size(), 1u);
  EXPECT_EQ(many.keep.policies().size(), 4u);
  EXPECT_EQ(StoreOptions{}.keep.last(), 3);
}

TEST(RetentionPolicies, TheNewestOfTheGreatestCount) {
  EXPECT_EQ((KeepLast{2} | KeepLast{5} | KeepLast{4}).last(), 5);
  EXPECT_THAT(left(view_of({1, 2, 3, 4, 5, 6, 7}), KeepLast{2} | KeepLast{4}), ElementsAre(4, 5, 6, 7));
}

TEST(RetentionPolicies, WithoutALastThreeStay) {
  EXPECT_EQ(Retention(KeepEvery{100}).last(), 3);
  EXPECT_EQ((KeepNewer{1s} | KeepBest{}).last(), 3);
  EXPECT_THAT(left(view_of({1, 2, 3, 4, 5}), KeepNewer{1s}), ElementsAre(3, 4, 5));
}

TEST(RetentionPolicies, EveryTakesTheFirstAtOrAfterEachMultiple) {
  EXPECT_THAT(left(view_of({50, 100, 150, 210, 290, 400, 401, 450, 460}), KeepLast{2} | KeepEvery{100}),
              ElementsAre(100, 210, 400, 450, 460));
}

// Whatever is saved later, what once stayed stays: files must not come and go.
TEST(RetentionPolicies, EveryNeverChangesItsMind) {
  std::vector<std::int64_t> present;
  std::vector<std::int64_t> expected;
  for (std::int64_t step = 30; step <= 3000; step += 30) {
    present.push_back(step);
    if (present.size() < 3) continue;
    present = left(view_of(present), KeepLast{2} | KeepEvery{100});
  }
  for (std::int64_t multiple = 100; multiple <= 2900; multiple += 100) {
    expected.push_back((multiple + 29) / 30 * 30);
  }
  expected.push_back(2970);
  expected.push_back(3000);
  EXPECT_EQ(present, expected);
}

TEST(RetentionPolicies, BestByTheMetricInItsDirection) {
  RetentionView view = view_of({1, 2, 3, 4, 5, 6});
  for (const auto& [step, value] : {std::pair{1, 0.5}, {2, 0.9}, {3, 0.7}, {4, 0.1}}) {
    measure(view, "accuracy", step, value);
  }
  EXPECT_THAT(left(view, KeepLast{2} | KeepBest{"accuracy", 2, Better::higher}), ElementsAre(2, 3, 5, 6));
  EXPECT_THAT(left(view, KeepLast{2} | KeepBest{"accuracy", 1, Better::lower}), ElementsAre(4, 5, 6));
  EXPECT_THAT(left(view, KeepLast{2} | KeepBest{"accuracy", 100, Better::lower}),
              ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(left(view, KeepLast{2} | KeepBest{"another", 1, Better::lower}), ElementsAre(5, 6));
}

TEST(RetentionPolicies, NanIsNeverBest) {
  RetentionView view = view_of({1, 2, 3, 4, 5, 6});
  measure(view, "loss", 1, std::nan(""));
  measure(view, "loss", 2, -std::numeric_limits<double>::infinity());
  measure(view, "loss", 3, 7);
  measure(view, "loss", 4, 8);
  EXPECT_THAT(left(view, KeepLast{2} | KeepBest{}), ElementsAre(3, 5, 6));
  view.facts.at({.attempt = 1, .step = 3}).finite = false;  // a parameter is NaN
  EXPECT_THAT(left(view, KeepLast{2} | KeepBest{}), ElementsAre(4, 5, 6));
}

TEST(RetentionPolicies, OfEqualsTheNewerIsBest) {
  RetentionView view = view_of({1, 2, 3, 4, 5});
  for (std::int64_t step = 1; step <= 3; ++step) measure(view, "loss", step, 0.25);
  EXPECT_THAT(left(view, KeepLast{2} | KeepBest{}), ElementsAre(3, 4, 5));
}

TEST(RetentionPolicies, NewerGoesByAge) {
  RetentionView view = view_of({1, 2, 3, 4, 5, 6});
  view.facts[{1, 1}].age = 25h;
  view.facts[{1, 2}].age = 24h;
  view.facts[{1, 3}].age = 1h;
  view.facts[{1, 4}] = {};  // does not say
  EXPECT_THAT(left(view, KeepLast{2} | KeepNewer{24h}), ElementsAre(2, 3, 5, 6));
  view.facts[{1, 1}].age = -1h;  // from a clock that was ahead
  EXPECT_THAT(left(view, KeepLast{2} | KeepNewer{24h}), ElementsAre(1, 2, 3, 5, 6));
}

TEST(RetentionPolicies, ReasonsAreSaid) {
  RetentionView view = view_of({100, 200, 300, 400, 500, 600});
  measure(view, "test_accuracy", 100, 0.934);
  view.facts[{1, 300}].age = 1h;
  view.newest_finite = FileId{1, 400};
  const auto why = staying(
      view, KeepLast{2} | KeepEvery{200} | KeepNewer{24h} | KeepBest{"test_accuracy", 1, Better::higher});
  EXPECT_EQ(why.at({1, 100}), "best test_accuracy (0.934)");
  EXPECT_EQ(why.at({1, 200}), "every 200");
  EXPECT_EQ(why.at({1, 300}), "newer than 1d 00h");
  EXPECT_EQ(why.at({1, 600}), "last 2");
}

TEST(RetentionPolicies, NonsenseIsRefused) {
  for (const Retention& keep :
       {Retention(KeepLast{1}), Retention(KeepEvery{0}), Retention(KeepEvery{-1}), Retention(KeepNewer{0s}),
        Retention(KeepNewer{-1s}), Retention(KeepBest{.count = 0}), Retention(KeepBest{.metric = ""}),
        Retention(KeepBest{.metric = "a,b"}), Retention(KeepBest{.metric = std::string(101, 'x')}),
        Retention(KeepBest{"accuracy", kMostBest + 1}), KeepLast{5} | KeepLast{1}}) {
    EXPECT_THROW(keep.check(), UsageError);
    MemoryFileSystem disk;
    EXPECT_THROW(Life(disk, {.keep = keep}), UsageError);
  }
  EXPECT_NO_THROW(Retention(KeepBest{"accuracy", kMostBest}).check());
  EXPECT_NO_THROW(Retention(KeepBest{"loss", 1000}).check());
}

class Policies : public testing::Test {
 public:
  std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> found;
    for (const std::string& name : checkpoints(disk)) found.push_back(parse_checkpoint_name(name)->step);
    return found;
  }
  MemoryFileSystem disk;
};

// The evaluation of step k comes after its file: the value is found in the next file, for step k alone.
TEST_F(Policies, AValueBelongsToItsStepWhicheverFileTellsIt) {
  Life life(disk, {.keep = KeepLast{2} | KeepBest{"accuracy", 1, Better::higher}});
  life.start();
  const std::map<std::int64_t, double> accuracies{{10, 0.2}, {20, 0.9}, {30, 0.4}, {40, 0.5}, {50, 0.6}};
  for (const auto& [step, value] : accuracies) {
    life.round(step);
    life.metrics["accuracy"] = {{step, value}};  // the newest known, with its step
  }
  life.round(60);
  EXPECT_THAT(steps(), ElementsAre(20, 50, 60));
}

TEST_F(Policies, ANewAttemptKnowsTheBestOfItsHistory) {
  const Retention keep = KeepLast{2} | KeepBest{"accuracy", 1, Better::higher};
  {
    Life life(disk, {.keep = keep});
    life.start();
    for (const std::int64_t step : {10, 20, 30}) {
      life.metrics["accuracy"][step] = step == 10 ? 0.9 : 0.1;
      life.round(step);
    }
  }
  Life life(disk, {.keep = keep});
  life.start();
  for (const std::int64_t step : {40, 50, 60}) life.round(step);
  EXPECT_THAT(steps(), ElementsAre(10, 50, 60));
}

TEST_F(Policies, AMetricThatNobodyMeasuredIsSaidOnce) {
  testing::internal::CaptureStderr();
  Life life(disk, {.keep = KeepLast{2} | KeepBest{"acuracy", 1, Better::higher}});
  life.start();
  for (std::int64_t step = 10; step < 100; step += 10) life.round(step);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("no checkpoint has metric acuracy"));
  EXPECT_EQ(said.find("acuracy"), said.rfind("acuracy"));
  EXPECT_THAT(steps(), ElementsAre(80, 90));
}

TEST_F(Policies, HeadsAreReadOncePerProcess) {
  {
    Life life(disk, {.keep = KeepLast{100}});
    life.start();
    for (std::int64_t step = 10; step <= 80; step += 10) life.round(step);
  }
  Life life(disk, {.keep = KeepLast{2} | KeepNewer{24h} | KeepEvery{10}});
  life.start();
  life.round(90);
  life.round(100);
  life.verifier.asked.clear();
  life.round(110);
  life.round(120);
  EXPECT_EQ(life.verifier.asked.size(), 2u);  // the read-backs
}

TEST_F(Policies, NewerGoesByTheSteadyClockForOwnFiles) {
  Life life(disk, {.keep = KeepLast{2} | KeepNewer{1h}});
  life.tells_time = true;
  life.start();
  for (const std::int64_t step : {10, 20, 30, 40}) {
    life.round(step);
    life.clock.shift_wall(24h * 3650);  // the machine learns the time
    life.clock.advance(10min);
  }
  EXPECT_THAT(steps(), ElementsAre(10, 20, 30, 40));
  life.clock.shift_wall(-24h * 9000);
  life.clock.advance(2h);
  life.round(50);
  EXPECT_THAT(steps(), ElementsAre(40, 50));
}

TEST_F(Policies, AClockInTheFutureLeavesTheNewest) {
  {
    Life life(disk, {.keep = KeepLast{4} | KeepNewer{24h}});
    life.tells_time = true;
    life.start();
    for (std::int64_t step = 10; step <= 80; step += 10) life.round(step);
  }
  EXPECT_EQ(steps().size(), 8u);
  Life life(disk, {.keep = KeepNewer{24h}});  // no word about the last ones
  life.tells_time = true;
  life.clock.shift_wall(24h * 3650);
  life.start();
  life.round(90);
  EXPECT_THAT(steps(), ElementsAre(70, 80, 90));
}

TEST_F(Policies, AClockInThePastDeletesNothingNew) {
  {
    Life life(disk, {.keep = KeepLast{100}});
    life.tells_time = true;
    life.start();
    for (std::int64_t step = 10; step <= 50; step += 10) life.round(step);
  }
  Life life(disk, {.keep = KeepLast{2} | KeepNewer{24h}});
  life.tells_time = true;
  life.clock.shift_wall(-24h * 3650);
  life.start();
  life.round(60);
  EXPECT_EQ(steps().size(), 6u);
}

// A time that no clock ever showed is read from a file like any other.
TEST_F(Policies, NoTimeInAFileIsTooLong) {
  for (const std::int64_t seconds : {std::int64_t{0}, std::numeric_limits<std::int64_t>::max()}) {
    put_toy(disk, {.step = seconds == 0 ? 1 : 2, .attempt = 1, .unix_seconds = seconds});
  }
  put_toy(disk, {.step = 3, .attempt = 1});
  Life life(disk, {.keep = KeepLast{2} | KeepNewer{24h}});
  life.start();
  life.round(40);
  EXPECT_THAT(steps(), ElementsAre(2, 3, 40));
}

// A bad page of the page cache says nothing about the best file there is.
TEST_F(Policies, ABadReadCostsNoBestFile) {
  {
    Life life(disk, {.keep = KeepLast{100}});
    life.start();
    for (const std::int64_t step : {10, 20, 30, 40}) {
      life.metrics["accuracy"][step] = step == 10 ? 0.9 : 0.1;
      life.round(step);
    }
  }
  Life life(disk, {.keep = KeepLast{2} | KeepBest{"accuracy", 1, Better::higher}});
  life.start();
  life.verifier.answer = [](const ToyVerifier::Question& question) -> std::optional<Verdict> {
    if (question.step != 10 || question.uncached) return std::nullopt;
    return Verdict{.kind = Verdict::Kind::damaged, .reason = "a bad page"};
  };
  life.round(50);
  EXPECT_THAT(steps(), ElementsAre(10, 40, 50));
}

}}  // namespace holdfast::test
