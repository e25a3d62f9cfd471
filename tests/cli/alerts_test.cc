// examples/alerts: promtool accepts the rules, each fires on a history that needs it, and none on a good one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "support/subprocess.h"

namespace holdfast::test { namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::filesystem::path kExamples = HOLDFAST_SOURCE_DIR "/examples/alerts";

Ended promtool(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {"/bin/sh", "-c", "promtool \"$@\"", "sh"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return Subprocess(words).wait();
}

TEST(Alerts, FireWhenTheyShould) {
  const TemporaryFolder folder;
  const auto rules = folder.path() / "holdfast.rules.yml";
  const auto histories = folder.path() / "histories.yml";
  std::filesystem::copy_file(kExamples / "holdfast.rules.yml", rules);
  std::filesystem::copy_file(HOLDFAST_SOURCE_DIR "/tests/cli/alerts.promtool.yml", histories);
  const Ended checked = promtool({"check", "rules", rules.string()});
  if (checked.exit_code == 127) GTEST_SKIP() << "no promtool here (Debian: prometheus)";
  EXPECT_EQ(checked.exit_code, 0) << checked.err;
  const Ended tested = promtool({"test", "rules", histories.string()});
  EXPECT_EQ(tested.exit_code, 0) << tested.out << tested.err;
}

TEST(Alerts, OfABlindRunGetTheirMetricFromHealth) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "health.prom";
  const auto write = [&](const std::string& directory) {
    return Subprocess({kExamples / "health-to-prom", directory, file.string()},
                      {{"HOLDFAST", HOLDFAST_BIN_DIR "/holdfast"}})
        .wait();
  };
  std::filesystem::create_directory(folder.path() / "run 1");
  EXPECT_EQ(write((folder.path() / "run 1").string()).exit_code, 0);
  EXPECT_THAT(read_text(file),
              AllOf(HasSubstr("\nholdfast_health_exit_code{run=\"run_1\"} "),
                    HasSubstr("\nholdfast_run_verdict{run=\"run_1\",verdict=\"untrained\"} 1\n")));
  EXPECT_EQ(write((folder.path() / "none").string()).exit_code, 0);
  EXPECT_THAT(read_text(file), AllOf(HasSubstr("run=\"none\"} 2\n"), HasSubstr("verdict=\"unreadable\"} 1\n"),
                                     HasSubstr("# TYPE holdfast_health_exit_code gauge\n")));
  const Ended checked =
      Subprocess({"/bin/sh", "-c", "promtool check metrics <\"$1\"", "sh", file.string()}).wait();
  if (checked.exit_code != 127) {
    EXPECT_EQ(checked.exit_code, 0) << checked.err;
  }
}

}}  // namespace holdfast::test
