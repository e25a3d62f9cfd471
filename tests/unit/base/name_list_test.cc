#include "holdfast/base/name_list.h"

#include <gtest/gtest.h>

#include <vector>

namespace holdfast::test { namespace {

TEST(NameList, StaysShort) {
  const std::vector<std::string> names = {"a", "b", "c"};
  EXPECT_EQ(name_list({}, 2), "");
  EXPECT_EQ(name_list(std::span(names).first(1), 2), "a");
  EXPECT_EQ(name_list(std::span(names).first(2), 2), "a, b");
  EXPECT_EQ(name_list(names, 2), "a, b and 1 more");
}

}}  // namespace holdfast::test
