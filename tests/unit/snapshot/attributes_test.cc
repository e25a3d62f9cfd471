#include "holdfast/snapshot/attributes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "holdfast/base/error.h"

namespace holdfast { namespace {

using testing::HasSubstr;

TEST(Attributes, KeepTypeValueAndRole) {
  Attributes attributes;
  attributes.set("step", std::int64_t{12});
  attributes.set("host", std::string("tuna"), Role::record);
  attributes.set("step", std::int64_t{13});
  EXPECT_EQ(attributes.size(), 2u);
  EXPECT_EQ(attributes.get_int("step"), 13);
  EXPECT_EQ(attributes.find("host")->role, Role::record);
  EXPECT_EQ(attributes.find("nothing"), nullptr);
  attributes.erase("host");
  EXPECT_FALSE(attributes.has("host"));
}

TEST(Attributes, GettersNameWhatIsWrong) {
  Attributes attributes;
  attributes.set("lr", 0.1);
  try {
    attributes.get_int("lr");
    FAIL();
  } catch (const RefusedError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'lr' is a float, not an integer"));
  }
  try {
    attributes.get_double("optimizer.lr");
    FAIL();
  } catch (const RefusedError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no attribute 'optimizer.lr'"));
  }
}

TEST(Attributes, RefuseNamesAndTextsThatCannotBeStored) {
  Attributes attributes;
  EXPECT_THROW(attributes.set("", true), UsageError);
  EXPECT_THROW(attributes.set("a\nb", true), UsageError);
  EXPECT_THROW(attributes.set("a\xff", true), UsageError);
  EXPECT_THROW(attributes.set("a", std::string("\xff")), UsageError);
  EXPECT_THROW(attributes.set("a", std::vector<std::string>{"good", "\xc0"}), UsageError);
  attributes.set("a", std::string("line\nline"));
  EXPECT_EQ(attributes.size(), 1u);
}

TEST(Attributes, WithPrefixIsInOrderAndExact) {
  Attributes attributes;
  for (const char* const name : {"b.2", "b.1", "a", "b", "ba", "c"}) attributes.set(name, true);
  const auto found = attributes.with_prefix("b.");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].first, "b.1");
  EXPECT_EQ(found[1].first, "b.2");
  EXPECT_EQ(attributes.with_prefix("").size(), 6u);
}

TEST(SameBits, ComparesDoublesByBits) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double other_nan = std::bit_cast<double>(std::bit_cast<std::uint64_t>(nan) ^ 1);
  EXPECT_TRUE(same_bits(nan, nan));
  EXPECT_FALSE(same_bits(nan, other_nan));
  EXPECT_FALSE(same_bits(0.0, -0.0));
  EXPECT_FALSE(same_bits(std::int64_t{1}, 1.0));
  EXPECT_TRUE(same_bits(std::vector<double>{nan, 1}, std::vector<double>{nan, 1}));
  EXPECT_FALSE(same_bits(std::vector<double>{0.0}, std::vector<double>{-0.0}));
  EXPECT_FALSE(same_bits(std::vector<double>{1}, std::vector<double>{1, 1}));
}

TEST(ToText, ShowsEveryDigitAndNoControlCharacters) {
  EXPECT_EQ(to_text(0.1), "0.1");
  EXPECT_EQ(to_text(true), "true");
  EXPECT_EQ(to_text(std::string("a\"b\x1b")), "\"a\\\"b\\x1b\"");
  EXPECT_EQ(to_text(std::string("\x01\x02\x03")), "\"\\x01\\x02\\x03\"");
  EXPECT_EQ(to_text(std::vector<std::int64_t>{1, 2, 3}), "[1, 2, 3]");
  EXPECT_EQ(to_text(std::vector<std::string>{}), "[]");
}

}}  // namespace holdfast
