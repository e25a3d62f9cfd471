#include "holdfast/store/retention_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "holdfast/base/error.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    parse_retention(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(RetentionText, ANumberAloneIsHowManyStay) {
  EXPECT_EQ(parse_retention("5").last(), 5);
  EXPECT_EQ(to_text(parse_retention("5")), "last=5");
}

TEST(RetentionText, ComesBackAsItWasWritten) {
  for (const std::string text :
       {"last=3", "every=10000", "best=loss:min:2", "newer=7d",
        "last=3,every=1000,best=test_accuracy:max:2,newer=90s", "best=a/b-c.d_e:max:1", "newer=1500000ns"}) {
    EXPECT_EQ(to_text(parse_retention(text)), text);
  }
  EXPECT_EQ(to_text(KeepLast{3} | KeepEvery{7} | KeepBest{} | KeepNewer{36h}),
            "last=3,every=7,best=loss:min:1,newer=129600s");
}

TEST(RetentionText, WhatIsLeftOutHasOneMeaning) {
  EXPECT_EQ(to_text(parse_retention("best=loss")), "best=loss:min:1");
  EXPECT_EQ(to_text(parse_retention("best=test_accuracy:max")), "best=test_accuracy:max:1");
  EXPECT_THAT(refusal("best=test_accuracy"), HasSubstr(":max"));
}

TEST(RetentionText, NonsenseIsRefusedAndQuoted) {
  for (const std::string text : {"", ",", "last", "last=", "last=x", "last=2.5", "last=99999999999", "3,,4",
                                 "every=", "every=2k", "best=", "best=x:up", "best=x:max:y", "best=x:max:2:3",
                                 "newer=7", "newer=soon", "oldest=3", "last=3 ,every=5", "KeepLast{3}"}) {
    EXPECT_THAT(refusal(text), HasSubstr("keep: '")) << text;
  }
  EXPECT_THAT(refusal("last=3,evry=5"), HasSubstr("'evry=5'"));
}

TEST(RetentionText, NumbersThatMakeNoSenseAreRefused) {
  for (const std::string text : {"1", "0", "-3", "last=1", "every=0", "every=-5", "best=loss:min:0",
                                 "best=loss:min:-1", "newer=0", "last=5,every=0", "best=a b:max"}) {
    EXPECT_THAT(refusal(text), HasSubstr("keeping")) << text;
  }
}

}}  // namespace holdfast::test
