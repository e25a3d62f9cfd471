// What a notice file means, whatever is in it.
#include "holdfast/interruption/notice_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "holdfast/base/text.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::EndsWith;
using testing::HasSubstr;

const SteadyTime kNow{1000h};

WallTime wall() { return parse_utc("2025-06-01T12:00:00Z").value(); }

NoticeFile parse(std::string_view content) { return parse_notice_file(content, kNow, wall()); }

// Time until the deadline of the interruption in it; -1 s when there is none.
Duration left(std::string_view content) {
  const NoticeFile file = parse(content);
  EXPECT_TRUE(file.notice) << content;
  EXPECT_EQ(file.notice->kind, NoticeKind::deadline) << content;
  return file.notice->deadline ? Duration(*file.notice->deadline - kNow) : -1s;
}

constexpr Duration kNone = -1s;

TEST(NoticeFile, NothingInItIsAnInterruptionWithoutATime) {
  for (const char* const content : {"", " ", "\n", "\r\n\t "}) {
    const NoticeFile file = parse(content);
    ASSERT_TRUE(file.notice);
    EXPECT_EQ(file.notice->kind, NoticeKind::deadline);
    EXPECT_EQ(file.notice->deadline, std::nullopt);
    EXPECT_EQ(file.notice->source, "file");
    EXPECT_EQ(file.notice->text, "there is a notice file");
    EXPECT_FALSE(file.whole);  // or somebody has just made it
  }
}

TEST(NoticeFile, ActionsThatEndTheMachine) {
  for (const char* const action : {"terminate", "stop", "hibernate", "unheard-of", ""}) {
    const NoticeFile file = parse(R"({"action": ")" + std::string(action) + R"("})");
    EXPECT_TRUE(file.whole);
    ASSERT_TRUE(file.notice);
    EXPECT_EQ(file.notice->kind, NoticeKind::deadline);
    EXPECT_EQ(file.notice->deadline, std::nullopt);
    EXPECT_EQ(file.notice->text, "the notice file says " + std::string(action));
    EXPECT_EQ(file.notice->hibernates, std::string(action) == "hibernate");
  }
  for (const char* const content :
       {"{}", R"({"action": 7})", R"({"Action": "none"})", R"({"action": null})"}) {
    EXPECT_EQ(parse(content).notice->text, "the notice file says terminate");
  }
}

TEST(NoticeFile, ActionsThatLetTheRunGoOn) {
  for (const char* const action : {"checkpoint", "rebalance"}) {
    const NoticeFile file = parse(R"({"action": ")" + std::string(action) + R"(", "in_seconds": 5})");
    EXPECT_TRUE(file.whole);
    EXPECT_EQ(file.notice->kind,
              action == std::string("checkpoint") ? NoticeKind::checkpoint_now : NoticeKind::at_risk);
    EXPECT_EQ(file.notice->deadline, std::nullopt);
  }
  EXPECT_FALSE(parse(R"({"action": "none", "in_seconds": 5})").notice);
  EXPECT_TRUE(parse(R"({"action": "none"})").whole);
}

TEST(NoticeFile, TimesThatAreBelieved) {
  EXPECT_EQ(left(R"({"time": "2025-06-01T12:01:30Z"})"), 90s);
  EXPECT_EQ(left(R"({"time": "2025-06-01T14:01:30.5+02:00"})"), 90'500ms);
  EXPECT_EQ(left(R"({"in_seconds": 90})"), 90s);
  EXPECT_EQ(left(R"({"in_seconds": 0.25})"), 250ms);
  EXPECT_EQ(left(R"({"in_seconds": 3e2})"), 300s);
  EXPECT_EQ(left(R"({"in_seconds": 90, "time": "2025-06-01T12:01:00Z"})"), 60s);
  EXPECT_EQ(left(R"({"in_seconds": 30, "time": "2025-06-01T12:01:00Z"})"), 30s);
  EXPECT_EQ(left(R"({"action": "stop"})"), kNone);
}

TEST(NoticeFile, TimesThatAreNotAreSoon) {
  for (const char* const member :
       {R"("time": "2025-06-01T12:00:00Z")", R"("time": "2025-06-01T11:59:59Z")", R"("time": "soon")",
        R"("time": "")", R"("time": 1748779205)", R"("time": null)", R"("time": "2027-06-01T12:00:00Z")",
        R"("time": "9999-99-99T99:99:99Z")", R"("in_seconds": 0)", R"("in_seconds": -5)",
        R"("in_seconds": "90")", R"("in_seconds": 1e300)", R"("in_seconds": 31536001)",
        R"("in_seconds": 18446744073709551615)", R"("in_seconds": [90])"}) {
    EXPECT_EQ(left("{" + std::string(member) + "}"), kUnknownNoticeTime) << member;
  }
  // One that is believed, and one that is not.
  EXPECT_EQ(left(R"({"in_seconds": 500, "time": "soon"})"), kUnknownNoticeTime);
}

TEST(NoticeFile, GarbageIsANoticeThatMayBeHalfWritten) {
  for (const std::string& content :
       {std::string("now!"), std::string("{\"action\": \"checkp"), std::string("[]"), std::string("null"),
        std::string("42"), std::string("\"stop\""), std::string("{}{}"), std::string("{\"a\":\"\xff\"}"),
        std::string("{}\0", 3), std::string("\0\0\0", 3), std::string(16000, '['),
        std::string("\xef\xbb\xbf")}) {
    const NoticeFile file = parse(content);
    EXPECT_FALSE(file.whole) << content.substr(0, 20);
    ASSERT_TRUE(file.notice);
    EXPECT_EQ(file.notice->kind, NoticeKind::deadline);
    EXPECT_EQ(file.notice->deadline, std::nullopt);
    EXPECT_THAT(file.notice->text, HasSubstr("not a JSON object"));
  }
}

TEST(NoticeFile, OfTwoMembersOfOneNameTheLastCountsAndWhatLiesInOthersDoesNot) {
  EXPECT_EQ(left(R"({"in_seconds": 5, "in_seconds": 60})"), 60s);
  EXPECT_EQ(left(R"({"more": {"in_seconds": 5, "list": [{"in_seconds": 6}]}, "in_seconds": 60})"), 60s);
  EXPECT_EQ(left(R"({"more": [[], {}, [{"a": [1, 2]}]], "in_seconds": 60})"), 60s);
}

TEST(NoticeFile, DeepNestingIsGarbage) {
  const auto nested = [](std::size_t deep) {
    return R"({"a": )" + std::string(deep, '[') + std::string(deep, ']') + R"(, "in_seconds": 60})";
  };
  EXPECT_EQ(left(nested(63)), 60s);
  EXPECT_EQ(left(nested(64)), kNone);
  EXPECT_EQ(left(nested(8000)), kNone);
}

TEST(NoticeFile, WhatIsTooLongIsANoticeToo) {
  const std::string fits = R"({"action": "none")" + std::string(kMaxNoticeFile - 18, ' ') + "}";
  ASSERT_EQ(fits.size(), kMaxNoticeFile);
  EXPECT_FALSE(parse(fits).notice);
  const NoticeFile file = parse(fits + " ");
  EXPECT_FALSE(file.whole);
  EXPECT_THAT(file.notice.value().text, HasSubstr("longer than 16 KiB"));
}

TEST(NoticeFile, TextsAreOneShortPhrase) {
  EXPECT_EQ(parse(R"({"action": "stop", "text": "node drain"})").notice->text,
            "the notice file says stop: node drain");
  EXPECT_EQ(parse(R"({"text": "a\nb\u001b[31m\u0000c\u007f"})").notice->text,
            "the notice file says terminate: a b [31m c ");
  EXPECT_EQ(parse(R"({"text": 7})").notice->text, "the notice file says terminate");
  // Cut between characters: é has two bytes, and the 200th is the first of one.
  std::string many = "x";
  for (int i = 0; i < 200; ++i) many += "é";
  const std::string text = parse(R"({"text": ")" + many + R"("})").notice->text;
  EXPECT_EQ(text.size(),
            std::string("the notice file says terminate: ").size() + 199 + std::string("…").size());
  EXPECT_THAT(text, EndsWith("é…"));
  EXPECT_LT(parse(R"({"action": ")" + many + R"("})").notice->text.size(), 100u);
}

}}  // namespace holdfast::test
