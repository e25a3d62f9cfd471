#include "holdfast/base/system/machine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>

namespace holdfast::test { namespace {

TEST(Machine, HasItsOwnName) {
  std::array<char, 256> name{};
  ASSERT_EQ(gethostname(name.data(), name.size() - 1), 0);
  EXPECT_EQ(host_name(), name.data());
}

TEST(Machine, TheBootIsTheSameEveryTime) {
  EXPECT_EQ(boot_id().size(), 36U) << "a UUID";
  EXPECT_EQ(boot_id(), boot_id());
}

}}  // namespace holdfast::test
