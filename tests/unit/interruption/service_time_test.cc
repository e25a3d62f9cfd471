#include "holdfast/interruption/service_time.h"

#include <gtest/gtest.h>

#include "holdfast/base/text.h"

namespace holdfast { namespace {

TEST(ServiceTime, EveryProvidersWay) {
  const auto moment = parse_utc("2025-06-01T02:00:05Z");
  for (const char* const text :
       {"2025-06-01T02:00:05Z", "Sun, 01 Jun 2025 02:00:05 GMT", "01 Jun 2025 02:00:05 GMT",
        "1 Jun 2025 02:00:05 UTC", "Mon, 1 Jun 2025 02:00:05 GMT"}) {
    EXPECT_EQ(parse_service_time(text), moment) << text;
  }
  EXPECT_EQ(format_http_date(*moment), "Sun, 01 Jun 2025 02:00:05 GMT");
}

TEST(ServiceTime, WhatItWritesItReads) {
  for (std::int64_t seconds = 0; seconds < 8'000'000'000; seconds += 86'399 * 37) {
    const WallTime time{std::chrono::seconds(seconds)};
    EXPECT_EQ(parse_service_time(format_http_date(time)), time);
  }
}

TEST(ServiceTime, AnythingElseIsNoTime) {
  for (const char* const text :
       {"", " ", "GMT", "Sun, ", "Sun, 01 Jun 2025 02:00:05", "Sun, 01 Jun 2025 02:00:05 CET",
        "Son, 01 Jun 2025 02:00:05 GMT", "Sun, 01 Juni 2025 02:00:05 GMT", "Sun, 001 Jun 2025 02:00:05 GMT",
        "Sun, 31 Jun 2025 02:00:05 GMT", "Sun, 01 Jun 25 02:00:05 GMT", "Sun, 01 Jun 2025 25:00:05 GMT",
        "Sun, 01 Jun 2025 02:00:05 GMT ", "Sun, 01 Jun  2025 02:00:05 GMT",
        "Sun, -1 Jun 2025 02:00:05 GMT"}) {
    EXPECT_EQ(parse_service_time(text), std::nullopt) << text;
  }
}

}}  // namespace holdfast
