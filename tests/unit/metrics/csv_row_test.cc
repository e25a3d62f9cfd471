#include "holdfast/metrics/csv_row.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace holdfast { namespace {

using namespace std::chrono_literals;

std::string fixed_of(const StepEvent& event, WallTime time = WallTime(1795441454125ms),
                     std::uint64_t attempt = 3) {
  std::array<char, kCsvRowSize> buffer{};
  return std::string(write_csv_step(event, time, attempt, buffer));
}

std::string evaluation_of(const EvaluationEvent& event) {
  std::array<char, kCsvRowSize> buffer{};
  return std::string(write_csv_evaluation(event, buffer));
}

std::vector<std::string> fields_of(std::string_view line) {
  std::vector<std::string> fields(1);
  for (const char c : line) {
    if (c == ',') {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

TEST(CsvRow, OneRowAStep) {
  EXPECT_EQ(fixed_of({.step = 16, .epoch = 0, .samples = 256, .loss = 0.5, .learning_rate = 0.1}),
            "0,16,256,1795441454.125,0.1,0.5,,3,");
  EXPECT_EQ(fixed_of({.step = 1, .epoch = 2, .samples = 3, .loss = 4, .learning_rate = 5, .accuracy = 0.25}),
            "2,1,3,1795441454.125,5,4,0.25,3,");
  EXPECT_EQ(evaluation_of({.accuracy = 0.11, .loss = 2.25}), "2.25,0.11");
  const std::string row = fixed_of({.step = 1}) + evaluation_of({});
  EXPECT_EQ(fields_of(row).size(), fields_of(kCsvHeader).size());
}

TEST(CsvRow, NotANumberAndInfinityAreWhatPandasReads) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(fields_of(fixed_of({.step = 1, .loss = nan}))[5], "nan");
  EXPECT_EQ(fields_of(fixed_of({.step = 1, .loss = -nan}))[5], "nan");
  EXPECT_EQ(fields_of(fixed_of({.step = 1, .loss = infinity}))[5], "inf");
  EXPECT_EQ(fields_of(fixed_of({.step = 1, .loss = -infinity}))[5], "-inf");
  EXPECT_EQ(evaluation_of({.accuracy = 0, .loss = nan}), "nan,0");
}

TEST(CsvRow, EveryLossComesBackBitForBit) {
  std::mt19937_64 random(3);
  for (int i = 1; i < 2000; ++i) {
    const double loss = static_cast<float>(std::ldexp(static_cast<double>(random()), -60));
    EXPECT_EQ(std::stod(fields_of(fixed_of({.step = i, .loss = loss}))[5]), loss);
  }
}

TEST(CsvRow, TheLongestFits) {
  constexpr double kLong = -2.2250738585072014e-308;
  const std::int64_t least = std::numeric_limits<std::int64_t>::min();
  const std::string fixed = fixed_of({.step = least,
                                      .epoch = least,
                                      .samples = least,
                                      .loss = kLong,
                                      .learning_rate = kLong,
                                      .accuracy = kLong},
                                     WallTime::min(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_LT(fixed.size() + evaluation_of({.accuracy = kLong, .loss = kLong}).size() + 1, kCsvRowSize);
}

TEST(CsvRow, WhatWasWrittenIsRead) {
  const std::string line = fixed_of({.step = 16, .loss = 0.5, .accuracy = 1}) + evaluation_of({.loss = 2});
  const auto row = parse_csv_row(line);
  ASSERT_TRUE(row);
  EXPECT_EQ(row->step, 16);
  EXPECT_EQ(row->attempt, 3U);
  EXPECT_EQ(row->fixed, fixed_of({.step = 16, .loss = 0.5, .accuracy = 1}));
  EXPECT_EQ(row->evaluation, "2,0");
  EXPECT_TRUE(row->whole);
}

TEST(CsvRow, ARowTornInItsEvaluationIsStillARow) {
  const std::string fixed = "0,16,256,1.5,0.1,0.5,,3,";
  for (const char* torn : {"", "2", "2.5", "2.5,", "2.5,x", ",0.5", "2.5,0.1,", "2.5,0.1,9", "x,1"}) {
    const auto row = parse_csv_row(fixed + torn);
    ASSERT_TRUE(row) << torn;
    EXPECT_FALSE(row->whole) << torn;
    EXPECT_EQ(row->evaluation, kCsvNoEvaluation) << torn;
  }
  EXPECT_TRUE(parse_csv_row(fixed + ",")->whole);
  EXPECT_TRUE(parse_csv_row(fixed + "nan,inf")->whole);
}

TEST(CsvRow, EveryShorterBeginningIsNone) {
  const std::string fixed = "0,16,256,1.5,0.1,0.5,,3,";
  for (std::size_t length = 0; length < fixed.size(); ++length) {
    EXPECT_FALSE(parse_csv_row(fixed.substr(0, length))) << fixed.substr(0, length);
  }
}

TEST(CsvRow, OtherTextIsNone) {
  for (const char* text :
       {"x,16,256,1.5,0.1,0.5,,3,,", "0,x,256,1.5,0.1,0.5,,3,,", "0,-1,256,1.5,0.1,0.5,,3,,",
        "0,16,x,1.5,0.1,0.5,,3,,", "0,16,256,1.5,0.1,0.5,,,,", "0,16,256,1.5,0.1,0.5,,-3,,",
        "0,16,256,1.5,0.1,0.5 ,,3,,", "0,1.5,256,1.5,0.1,0.5,,3,,", "\"0\",16,256,1,1,1,,3,,",
        "0,99999999999999999999,256,1.5,0.1,0.5,,3,,"}) {
    EXPECT_FALSE(parse_csv_row(text)) << text;
  }
  EXPECT_FALSE(parse_csv_row(kCsvHeader));
}

}}  // namespace holdfast
