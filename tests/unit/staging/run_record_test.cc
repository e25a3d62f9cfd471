#include "holdfast/staging/run_record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "holdfast/base/error.h"

namespace holdfast { namespace {

RunRecord example() {
  RunRecord record;
  record.attempt = 7;
  record.ancestry = {{1, 100}, {4, 250}};
  record.loss = 0.25;
  record.finite = false;
  record.evaluation_due = true;
  record.overrides = {"learning_rate"};
  record.grown_from = "step-000000000250-a0004.h5";
  record.time = "2026-01-02T03:04:05Z";
  record.host = "spot-17";
  record.metrics = {{"accuracy", {{100, 0.5}, {200, 0.25}}}, {"f1", {{200, -0.0}}}};
  return record;
}

TEST(RunRecord, ComesBackWhole) {
  Attributes attributes;
  put_run_record(attributes, example());
  const RunRecord back = run_record_of(attributes);
  EXPECT_EQ(back.attempt, 7u);
  EXPECT_EQ(back.ancestry, example().ancestry);
  EXPECT_EQ(back.loss, 0.25);
  EXPECT_FALSE(back.finite);
  EXPECT_TRUE(back.evaluation_due);
  EXPECT_EQ(back.overrides, example().overrides);
  EXPECT_EQ(back.grown_from, example().grown_from);
  EXPECT_EQ(back.time, example().time);
  EXPECT_EQ(back.host, example().host);
  EXPECT_EQ(back.metrics, example().metrics);
}

TEST(RunRecord, ALossThatWasNotToldIsNoNumberAndNotNaN) {
  const auto loss_of = [](std::optional<double> loss) {
    RunRecord record = example();
    record.loss = loss;
    Attributes attributes;
    put_run_record(attributes, record);
    return run_record_of(attributes).loss;
  };
  EXPECT_FALSE(loss_of(std::nullopt));
  EXPECT_TRUE(std::isnan(loss_of(std::numeric_limits<double>::quiet_NaN()).value()));
  EXPECT_TRUE(std::isinf(loss_of(std::numeric_limits<double>::infinity()).value()));
}

// Files of earlier versions: without run.loss_told, and with one that speaks of all steps.
TEST(RunRecord, OlderFilesKeepTheirMeaning) {
  const auto loss_of = [](double loss, std::optional<bool> told) {
    Attributes attributes;
    put_run_record(attributes, example());
    attributes.set(kRunLoss, loss, Role::record);
    Attributes older;
    for (const auto& [name, attribute] : attributes) {
      if (name != kRunLossTold) older.set(name, attribute.value, attribute.role);
    }
    if (told) older.set(kRunLossTold, *told, Role::record);
    return run_record_of(older).loss;
  };
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(loss_of(0.5, std::nullopt), 0.5);
  EXPECT_EQ(loss_of(0.5, true), 0.5);
  EXPECT_FALSE(loss_of(kNaN, std::nullopt));
  EXPECT_FALSE(loss_of(kNaN, false));
  EXPECT_TRUE(std::isnan(loss_of(kNaN, true).value()));
}

TEST(RunRecord, TakesNoPartInTheNextStep) {
  Attributes attributes;
  put_run_record(attributes, example());
  for (const auto& [name, attribute] : attributes) EXPECT_EQ(attribute.role, Role::record) << name;
}

TEST(RunRecord, RefusesWhatIsMissingOrMalformed) {
  EXPECT_THROW(run_record_of(Attributes()), RefusedError);
  const auto broken = [](const char* name, AttributeValue value) {
    Attributes attributes;
    put_run_record(attributes, example());
    attributes.set(name, std::move(value), Role::record);
    return attributes;
  };
  using Ints = std::vector<std::int64_t>;
  EXPECT_THROW(run_record_of(broken(kRunAttempt, std::int64_t{0})), RefusedError);
  EXPECT_THROW(run_record_of(broken(kRunAncestry, Ints{1})), RefusedError);
  EXPECT_THROW(run_record_of(broken(kRunAncestry, Ints{1, 5, 1, 6})), RefusedError);
  EXPECT_THROW(run_record_of(broken(kRunAncestry, Ints{-1, 5})), RefusedError);
  EXPECT_THROW(run_record_of(broken(kRunFinite, std::string("yes"))), RefusedError);
  EXPECT_THROW(run_record_of(broken(kRunMetricSteps, Ints{1})), RefusedError);
  EXPECT_THROW(run_record_of(broken(kRunMetricValues, std::vector<double>{})), RefusedError);
  EXPECT_THROW(run_record_of(broken(kRunMetrics, std::string("accuracy"))), RefusedError);
}

TEST(RunRecord, NothingMeasuredIsNothingRecorded) {
  RunRecord record = example();
  record.metrics.clear();
  Attributes attributes;
  put_run_record(attributes, record);
  EXPECT_FALSE(attributes.has(kRunMetrics));
  EXPECT_TRUE(run_record_of(attributes).metrics.empty());
}

TEST(RunRecord, HistoryGrowsByTheCheckpointsAttempt) {
  EXPECT_EQ(grown_from(example(), 300), (Ancestry{{1, 100}, {4, 250}, {7, 300}}));
}

TEST(RunRecord, EnvironmentIsComparedByName) {
  Attributes before, now;
  before.set("environment.threads", std::int64_t{4}, Role::record);
  before.set("environment.device", std::string("cpu"), Role::record);
  before.set("environment.old", true, Role::record);
  before.set("learning_rate", 0.1);
  now.set("environment.threads", std::int64_t{8}, Role::record);
  now.set("environment.device", std::string("cpu"), Role::record);
  now.set("environment.young", true, Role::record);
  EXPECT_EQ(environment_differences(before, now),
            (std::vector<std::string>{"environment.old: true → absent", "environment.threads: 4 → 8",
                                      "environment.young: absent → true"}));
  EXPECT_TRUE(environment_differences(before, before).empty());
}

}}  // namespace holdfast
