#include "holdfast/metrics/jsonl.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "holdfast/base/bits.h"
#include "holdfast/base/error.h"
#include "holdfast/io/line_file.h"
#include "support/fault_file_system.h"
#include "support/memory_file_system.h"

namespace holdfast { namespace {

std::string line_of(const StepEvent& event) {
  std::array<char, kStepLineSize> buffer{};
  return std::string(write_step_line(event, buffer));
}

TEST(StepLine, OneJsonObject) {
  EXPECT_EQ(
      line_of({.step = 12, .epoch = 3, .loss = 0.5, .learning_rate = 0.1, .images_per_s = 1830.456}),
      R"({"step":12,"epoch":3,"loss":0.5,"loss_bits":"3fe0000000000000","lr":0.1,"images_per_s":1830.46})");
}

TEST(StepLine, WhatJsonHasNoNumberForIsAWord) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_NE(line_of({.loss = nan}).find(R"("loss":"nan","loss_bits":"7ff8000000000000")"), std::string::npos);
  EXPECT_NE(line_of({.loss = -infinity}).find(R"("loss":"-inf","loss_bits":"fff0000000000000")"),
            std::string::npos);
  EXPECT_NE(line_of({.loss = 1, .images_per_s = infinity}).find(R"("images_per_s":0})"), std::string::npos);
}

TEST(StepLine, AnUpdateThatWasLeftOutSaysSo) {
  EXPECT_NE(line_of({.loss = 1, .skipped = true}).find(R"("images_per_s":0,"skipped":true})"),
            std::string::npos);
}

TEST(StepLine, ASaveThatBecameDurableIsToldOfInIt) {
  using namespace std::chrono_literals;
  EXPECT_EQ(line_of({.step = 12,
                     .loss = 0.5,
                     .saved = SavedEvent{.step = 10,
                                         .bytes = 188,
                                         .blocked = 21400us,
                                         .staging = 93ms,
                                         .write = 180234567ns,
                                         .commit = 31ms,
                                         .risk_steps = 11,
                                         .risk_time = 15s}}),
            R"({"step":12,"epoch":0,"loss":0.5,"loss_bits":"3fe0000000000000","lr":0,"images_per_s":0,)"
            R"("saved":{"step":10,"bytes":188,"blocked_ms":21.4,"staging_ms":93,"write_ms":180.235,)"
            R"("commit_ms":31,"risk_steps":11,"risk_ms":15000}})");
}

TEST(StepLine, TheLongestFits) {
  constexpr double kLong = -2.2250738585072014e-308;
  const std::int64_t least = std::numeric_limits<std::int64_t>::min();
  const SavedEvent saved{.step = least,
                         .bytes = 1ULL << 63,
                         .blocked = Duration::min(),
                         .staging = Duration::min(),
                         .write = Duration::min(),
                         .commit = Duration::min(),
                         .risk_steps = least,
                         .risk_time = Duration::min()};
  const std::string line = line_of({.step = least,
                                    .epoch = least,
                                    .loss = kLong,
                                    .learning_rate = kLong,
                                    .images_per_s = kLong * 1e300,
                                    .skipped = true,
                                    .saved = saved});
  EXPECT_LT(line.size(), kStepLineSize);
  EXPECT_EQ(line.back(), '}');
}

TEST(StepLine, EveryLossComesBackBitForBit) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 2000; ++i) {
    const double loss = static_cast<float>(std::ldexp(static_cast<double>(random()), -60));
    const std::string line = line_of({.step = i, .loss = loss});
    const auto number = line.find("\"loss\":") + 7;
    EXPECT_EQ(std::strtod(line.c_str() + number, nullptr), loss);
    const auto bits = line.find("loss_bits\":\"") + 12;
    EXPECT_EQ(double_from_bits_hex(line.substr(bits, 16)), loss);
  }
}

TEST(JsonlSink, LinesReachTheFileAtOnce) {
  test::MemoryFileSystem fs;
  fs.put("/m", "{\"step\":1}\n{\"st");
  LineFile file(fs, "/m");
  JsonlSink sink("/m", [&](std::string_view line) { file.append(line); });
  sink.step({.step = 2, .loss = 1});
  EXPECT_EQ(fs.get_text("/m"),
            "{\"step\":1}\n{\"st\n"
            R"({"step":2,"epoch":0,"loss":1,"loss_bits":"3ff0000000000000","lr":0,"images_per_s":0})"
            "\n");
}

TEST(JsonlSink, AFullDiskIsSaidOnceAndTrainingGoesOn) {
  test::MemoryFileSystem disk;
  test::FaultFileSystem fs(disk);
  LineFile file(fs, "/m");
  JsonlSink sink("/m", [&](std::string_view line) { file.append(line); });
  sink.step({.step = 1, .loss = 1});
  fs.fail(test::Op::write, 1, ENOSPC, {.for_ever = true});
  testing::internal::CaptureStderr();
  sink.step({.step = 2, .loss = 1});
  sink.step({.step = 3, .loss = 1});
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(
      said.rfind("holdfast: warning: no more metrics are written to /m (training goes on): write /m: ", 0),
      0u)
      << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
  EXPECT_TRUE(sink.failed());
  EXPECT_EQ(fs.count(test::Op::write), 2);
}

}}  // namespace holdfast
