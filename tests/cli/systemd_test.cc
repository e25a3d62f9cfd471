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
using testing::StartsWith;

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

// The lines in front of the unit, in an empty root. A trainer alone would use up its starts in a short outage.
TEST(SystemdUnit, LinesInFrontOfItStartASupervisedRun) {
  const TemporaryFolder folder;
  const std::filesystem::path root = folder.path();
  std::filesystem::create_directories(root / "etc/systemd/system");
  std::string block = "set -e; sudo() { \"$@\"; }; systemctl() { echo \"systemctl $*\"; }\n";
  for (const std::string& line : lines_of(read_text(kUnit))) {
    if (line.starts_with("#   ")) block += line.substr(4) + "\n";
  }
  for (std::size_t at = 0; (at = block.find(" /etc/", at)) != std::string::npos; at += root.string().size()) {
    block.insert(at + 1, root.string());
  }
  const Ended ended =
      Subprocess({"/bin/sh", "-c", "cd \"$1\" && eval \"$2\"", "sh", kUnit.parent_path().string(), block})
          .wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("systemctl enable --now holdfast@run1"));
  EXPECT_EQ(read_text(root / "etc/systemd/system/holdfast@.service"), read_text(kUnit));
  EXPECT_THAT(read_text(root / "etc/holdfast/run1.train"),
              StartsWith("exec holdfast supervise --directory /mnt/ckpt/run1 -- "));
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
