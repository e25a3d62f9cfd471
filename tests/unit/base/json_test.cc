#include "holdfast/base/json.h"

#include <gtest/gtest.h>

#include <limits>

namespace holdfast::test { namespace {

using Kind = JsonValue::Kind;

TEST(Json, KeepsEveryKindOfValue) {
  const JsonValue value = parse_json(R"({"a":null,"b":true,"c":1.5,"d":-7,"e":"x","f":[1,[2]],"g":{"h":0}})");
  ASSERT_TRUE(value.is(Kind::object));
  EXPECT_TRUE(value.find("a")->is(Kind::null));
  EXPECT_EQ(value.find("b")->integer, 1);
  EXPECT_EQ(value.find("c")->number, 1.5);
  EXPECT_FALSE(integer_member(value, "c"));
  EXPECT_EQ(integer_member(value, "d"), -7);
  EXPECT_EQ(text_member(value, "e"), "x");
  EXPECT_FALSE(text_member(value, "d"));
  EXPECT_FALSE(integer_member(value, "b"));
  ASSERT_EQ(value.find("f")->items.size(), 2U);
  EXPECT_EQ(value.find("f")->items[1].items.at(0).integer, 2);
  EXPECT_EQ(integer_member(*value.find("g"), "h"), 0);
  EXPECT_EQ(value.find("i"), nullptr);
}

TEST(Json, IntegersAreExactAsFarAsAnInt64Goes) {
  const JsonValue value = parse_json(R"([9223372036854775807,-9223372036854775808,9223372036854775808,1e3])");
  ASSERT_EQ(value.items.size(), 4U);
  EXPECT_EQ(value.items[0].integer, std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(value.items[1].integer, std::numeric_limits<std::int64_t>::min());
  EXPECT_FALSE(value.items[2].whole);
  EXPECT_EQ(value.items[2].number, 9223372036854775808.0);
  EXPECT_FALSE(value.items[3].whole);
}

TEST(Json, TheLastMemberOfANameCounts) {
  EXPECT_EQ(integer_member(parse_json(R"({"a":1,"b":5,"a":2})"), "a"), 2);
}

TEST(Json, TextThatIsNotOneValueIsNone) {
  using std::string_view_literals::operator""sv;
  for (const std::string_view text : {""sv, " "sv, "{"sv, "[1,]"sv, "{} {}"sv, "nul"sv, "'a'"sv, "\"\xff\""sv,
                                      "{}\0"sv, "1e999"sv, "{\"a\":01}"sv}) {
    EXPECT_TRUE(parse_json(text).is(Kind::none)) << text;
  }
}

TEST(Json, DepthIsLimited) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(parse_json(nested(64)).is(Kind::list));
  EXPECT_TRUE(parse_json(nested(65)).is(Kind::none));
  EXPECT_TRUE(parse_json(nested(2), 2).is(Kind::list));
  EXPECT_TRUE(parse_json(nested(3), 2).is(Kind::none));
  EXPECT_TRUE(parse_json(std::string(100'000, '[')).is(Kind::none));
}

TEST(Json, WritesAnyTextSoThatItIsReadAgain) {
  EXPECT_EQ(json_text("a\"b\\\n"), R"("a\"b\\\n")");
  EXPECT_EQ(parse_json(json_text("ä\t€")).text, "ä\t€");
  EXPECT_EQ(parse_json(json_text("a\xff")).text, "a\uFFFD");
}

}}  // namespace holdfast::test
