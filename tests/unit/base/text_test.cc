#include "holdfast/base/text.h"

#include <gtest/gtest.h>

#include <limits>

namespace holdfast { namespace {

using namespace std::chrono_literals;

TEST(ParseBytes, UnitsAreDecimalUnlessTheySayOtherwise) {
  EXPECT_EQ(parse_bytes("0"), 0u);
  EXPECT_EQ(parse_bytes("4096"), 4096u);
  EXPECT_EQ(parse_bytes("512B"), 512u);
  EXPECT_EQ(parse_bytes("2GB"), 2'000'000'000u);
  EXPECT_EQ(parse_bytes("2 GB"), 2'000'000'000u);
  EXPECT_EQ(parse_bytes("1.5TB"), 1'500'000'000'000u);
  EXPECT_EQ(parse_bytes("3k"), 3'000u);
  EXPECT_EQ(parse_bytes("3KiB"), 3'072u);
  EXPECT_EQ(parse_bytes("512MiB"), 536'870'912u);
  EXPECT_EQ(parse_bytes("1Gi"), 1'073'741'824u);
}

TEST(ParseBytes, RefusesWhatItDoesNotUnderstand) {
  for (const char* text : {"", "B", "GB", "-1", "1.2.3", "2GBs", "2XB", "1e3", "nan", "inf", "1 ", "1  GB",
                           "9EB1", "10EB", "99999999999999999999", "2gb", "iB", "1iB"}) {
    EXPECT_FALSE(parse_bytes(text).has_value()) << text;
  }
  EXPECT_TRUE(parse_bytes("8EiB").has_value());
}

TEST(ParseDuration, TakesNumbersWithUnits) {
  EXPECT_EQ(parse_duration("30s"), Duration(30s));
  EXPECT_EQ(parse_duration("5min"), Duration(5min));
  EXPECT_EQ(parse_duration("5m"), Duration(5min));
  EXPECT_EQ(parse_duration("2h"), Duration(2h));
  EXPECT_EQ(parse_duration("1.5h"), Duration(90min));
  EXPECT_EQ(parse_duration("1h30min"), Duration(90min));
  EXPECT_EQ(parse_duration("250ms"), Duration(250ms));
  EXPECT_EQ(parse_duration("7d"), Duration(24h * 7));
  EXPECT_EQ(parse_duration("0"), Duration(0));
  EXPECT_EQ(parse_duration("0s"), Duration(0));
}

TEST(ParseDuration, RefusesEverythingElse) {
  for (const char* text : {"", "30", "s", "-5s", "5 s", "5S", "5.5.5s", "1e3s", "infs", "nan", "5s ", " 5s",
                           "0x5s", "99999999d", "5min3", "5fortnights"}) {
    EXPECT_EQ(parse_duration(text), std::nullopt) << text;
  }
}

TEST(ParseNumbers, WholeTextOrNothing) {
  EXPECT_EQ(parse_int("500"), 500);
  EXPECT_EQ(parse_int("-1"), -1);
  EXPECT_EQ(parse_int(""), std::nullopt);
  EXPECT_EQ(parse_int("5x"), std::nullopt);
  EXPECT_EQ(parse_int("9223372036854775808"), std::nullopt);
  EXPECT_EQ(parse_double("1e-4"), 1e-4);
  EXPECT_EQ(parse_double("0.1"), 0.1);
  EXPECT_EQ(parse_double("nan"), std::nullopt);
  EXPECT_EQ(parse_double("inf"), std::nullopt);
  EXPECT_EQ(parse_double("1,5"), std::nullopt);
  EXPECT_EQ(parse_double(""), std::nullopt);
}

TEST(FormatDuration, TwoUnitsAtMost) {
  EXPECT_EQ(format_duration(350ms), "350 ms");
  EXPECT_EQ(format_duration(999999us), "1.0 s");
  EXPECT_EQ(format_duration(4200ms), "4.2 s");
  EXPECT_EQ(format_duration(9990ms), "10s");
  EXPECT_EQ(format_duration(35s), "35s");
  EXPECT_EQ(format_duration(59600ms), "1m 00s");
  EXPECT_EQ(format_duration(80s), "1m 20s");
  EXPECT_EQ(format_duration(2h + 5min), "2h 05m");
  EXPECT_EQ(format_duration(76h), "3d 04h");
  EXPECT_EQ(format_duration(-5s), "0s");
}

TEST(FormatBytes, ShowsThreeDigitsAndAUnit) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1000), "1.00 kB");
  EXPECT_EQ(format_bytes(94'300'000), "94.3 MB");
  EXPECT_EQ(format_bytes(999'600), "1.00 MB");
  EXPECT_EQ(format_bytes(2'140'000'000), "2.14 GB");
  EXPECT_EQ(format_bytes(std::numeric_limits<std::uint64_t>::max()), "18.4 EB");
  EXPECT_EQ(format_byte_rate(1'200'000'000, 1s), "1.20 GB/s");
  EXPECT_EQ(format_byte_rate(5, 0s), "0 B/s");
}

TEST(FormatNumbers, GroupsThousandsAndRoundsFractions) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1234567), "1,234,567");
  EXPECT_EQ(format_count(-1000), "-1,000");
  EXPECT_EQ(format_count(-999), "-999");
  EXPECT_EQ(format_count(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
  EXPECT_EQ(format_number(0.95131), "0.9513");
  EXPECT_EQ(format_number(93.42), "93.42");
  EXPECT_EQ(format_number(1830.4), "1,830");
  EXPECT_EQ(format_number(std::numeric_limits<double>::quiet_NaN()), "nan");
}

TEST(FormatUtc, WritesIso8601WithSeconds) {
  EXPECT_EQ(format_utc(WallTime(std::chrono::seconds(1748779205))), "2025-06-01T12:00:05Z");
}

TEST(ParseUtc, ReadsWhatRfc3339Allows) {
  const WallTime time(std::chrono::seconds(1748779205));
  for (const char* const text :
       {"2025-06-01T12:00:05Z", "2025-06-01t12:00:05z", "2025-06-01 12:00:05Z", "2025-06-01T12:00:05+00:00",
        "2025-06-01T12:00:05-00:00", "2025-06-01T14:30:05+02:30", "2025-05-31T23:59:05-12:01",
        "2025-06-01T12:00:05.0Z", "2025-06-01T12:00:05.00000000009Z"}) {
    EXPECT_EQ(parse_utc(text), time) << text;
  }
  EXPECT_EQ(parse_utc("2025-06-01T12:00:05.25Z"), time + 250ms);
  EXPECT_EQ(parse_utc("2025-06-01T12:00:05.000000001Z"), time + 1ns);
  EXPECT_EQ(parse_utc("1970-01-01T00:00:00Z"), WallTime());
  EXPECT_EQ(parse_utc("2024-02-29T00:00:00Z"), WallTime(std::chrono::seconds(1709164800)));
  EXPECT_EQ(parse_utc("2016-12-31T23:59:60Z"), parse_utc("2017-01-01T00:00:00Z"));
  EXPECT_EQ(format_utc(parse_utc("2261-12-31T23:59:59Z").value()), "2261-12-31T23:59:59Z");
}

TEST(ParseUtc, RefusesTheRest) {
  for (const char* const text : {"",
                                 "soon",
                                 "2025-06-01",
                                 "2025-06-01T12:00:05",
                                 "2025-06-01T12:00Z",
                                 "2025-6-1T12:00:05Z",
                                 "2025-06-01T12:00:05ZZ",
                                 " 2025-06-01T12:00:05Z",
                                 "2025-06-01T12:00:05Z ",
                                 "2025-13-01T12:00:05Z",
                                 "2025-00-01T12:00:05Z",
                                 "2025-02-29T12:00:05Z",
                                 "2025-06-31T12:00:05Z",
                                 "2025-06-00T12:00:05Z",
                                 "2025-06-01T24:00:00Z",
                                 "2025-06-01T12:60:05Z",
                                 "2025-06-01T12:00:61Z",
                                 "2025-06-01T12:00:05.Z",
                                 "2025-06-01T12:00:05.x",
                                 "2025-06-01T12:00:05+0200",
                                 "2025-06-01T12:00:05+24:00",
                                 "2025-06-01T12:00:05+02:60",
                                 "2025-06-01T12:00:05+02",
                                 "1969-12-31T23:59:59Z",
                                 "2262-01-01T00:00:00Z",
                                 "9999-12-31T23:59:59Z",
                                 "+025-06-01T12:00:05Z",
                                 "2025-06-01T-1:00:05Z",
                                 "1748779205"}) {
    EXPECT_EQ(parse_utc(text), std::nullopt) << text;
  }
}

}}  // namespace holdfast
