// examples/systemd/holdfast@.service as systemd-analyze reads it, and its exit codes and times against Holdfast's.
//
// No test starts a systemd. As process 1 of a container that shares the machine's files it would empty /tmp
// (systemd-tmpfiles).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "holdfast/base/exit_code.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;
using testing::Not;

const std::filesystem::path kUnit = HOLDFAST_SOURCE_DIR "/examples/systemd/holdfast@.service";

std::string setting(const std::string& name) {
  for (const std::string& line : lines_of(read_text(kUnit))) {
    if (line.starts_with(name + "=")) return line.substr(name.size() + 1);
  }
  return "(none)";
}

std::string code(ExitCode code) { return std::to_string(static_cast<int>(code)); }

TEST(SystemdUnit, IsWellFormed) {
  const TemporaryFolder folder;
  const auto unit = folder.path() / "holdfast@run1.service";
  const auto verify = [&] {
    return Subprocess({"/bin/sh", "-c", "systemd-analyze verify \"$1\"", "sh", unit.string()}).wait();
  };
  std::filesystem::copy_file(kUnit, unit);
  const Ended ended = verify();
  if (ended.exit_code == 127) GTEST_SKIP() << "no systemd-analyze here";
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, Not(HasSubstr(unit.filename().string() + ":"))) << "a line that systemd ignores";
  write_text(unit, read_text(kUnit) + "\n[Service]\nRestartPreventExitCode=78\n");
  EXPECT_THAT(verify().err, HasSubstr("RestartPreventExitCode")) << "a mistake passes";
}

TEST(SystemdUnit, KnowsHoldfastsExitCodes) {
  EXPECT_EQ(setting("RestartForceExitStatus"), code(ExitCode::interrupted));
  EXPECT_EQ(setting("SuccessExitStatus"), code(ExitCode::interrupted));
  EXPECT_EQ(setting("RestartPreventExitStatus"), code(ExitCode::usage) + " " + code(ExitCode::superseded) +
                                                     " " + code(ExitCode::refused) + " " +
                                                     code(ExitCode::forced));
}

TEST(SystemdUnit, KillsFiveSecondsAfterTheGracePeriod) {
  EXPECT_EQ(setting("KillMode"), "mixed");
  EXPECT_EQ(setting("Environment"),
            "HOLDFAST_TERM_GRACE=" + std::to_string(std::atoi(setting("TimeoutStopSec").c_str()) - 5) + "s");
}

}}  // namespace holdfast::test
