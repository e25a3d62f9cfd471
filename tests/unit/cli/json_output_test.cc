// What --json prints: UTF-8, and nothing that controls a terminal.
#include "holdfast/cli/output/json_output.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace holdfast { namespace {

TEST(JsonOutput, IsUtf8UnlessATextCouldControlATerminal) {
  EXPECT_EQ(dump_json({{"a", "größe \xff"}}, -1), "{\"a\":\"größe \xef\xbf\xbd\"}");
  EXPECT_EQ(dump_json({{"a", "größe \xc2\x9b"}}, -1), R"({"a":"gr\u00f6\u00dfe \u009b"})");
}

}}  // namespace holdfast
