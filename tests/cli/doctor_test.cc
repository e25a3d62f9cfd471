// `holdfast doctor`: what this machine lacks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/subprocess.h"

namespace holdfast::test { namespace {

using ::testing::HasSubstr;

TEST(DoctorCommand, PrintsALineForEachFindingAndOneJsonObject) {
  const Ended text = Subprocess({HOLDFAST_BIN_DIR "/holdfast", "doctor"}).wait();
  EXPECT_THAT(text.exit_code, ::testing::AnyOf(0, 1)) << text.err;
  EXPECT_THAT(text.out, HasSubstr("signals: "));
  EXPECT_EQ(text.err, "");
  const Ended json = Subprocess({HOLDFAST_BIN_DIR "/holdfast", "doctor", "--json"}).wait();
  EXPECT_THAT(json.out, HasSubstr("\"findings\""));
  EXPECT_EQ(json.exit_code, text.exit_code);
  EXPECT_EQ(Subprocess({HOLDFAST_BIN_DIR "/holdfast", "doctor", "--libtorch", "/"}).wait().exit_code, 1);
}

}}  // namespace holdfast::test
