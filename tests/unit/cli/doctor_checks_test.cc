#include "holdfast/cli/commands/doctor_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "holdfast/base/system/loaded_library.h"
#include "support/fake_clock.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using ::testing::HasSubstr;
using Verdict = Finding::Verdict;

class Doctor : public ::testing::Test {
 protected:
  void put(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((folder_.path() / name).parent_path());
    write_text(folder_.path() / name, text);
  }
  std::filesystem::path root() const { return folder_.path(); }
  static Finding only(const std::vector<Finding>& findings) {
    EXPECT_EQ(findings.size(), 1U);
    return findings.empty() ? Finding{} : findings.front();
  }

  TemporaryFolder folder_;
};

TEST_F(Doctor, TellsTheVersionAndAbiOfLibTorch) {
  put("torch/version.py", "from typing import Optional\n__version__ = '2.11.0+cu128'\n");
  put("torch/lib/libtorch_cpu.so", "");
  put("torch/lib/libc10.so", "_ZN3c105ErrorC1ENSt7__cxx1112basic_stringIcE");
  const auto findings = check_libtorch(root());
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_THAT(findings[0].text, HasSubstr("2.11.0+cu128 in "));
  EXPECT_THAT(findings[0].text, HasSubstr("without CUDA"));
  EXPECT_EQ(findings[1].verdict, Verdict::ok);
  put("torch/lib/libc10.so", "_ZN3c105ErrorC1ESs");
  EXPECT_EQ(check_libtorch(root() / "torch")[1].verdict, Verdict::failed) << "the old ABI";
}

TEST_F(Doctor, AFolderWithoutLibTorchFails) {
  const Finding finding = only(check_libtorch(root()));
  EXPECT_EQ(finding.verdict, Verdict::failed);
  EXPECT_THAT(finding.remedy, HasSubstr("--libtorch"));
}

TEST_F(Doctor, TellsMigOfTheSameGpuWhereNvmlCountsInAnotherOrder) {
  for (const char* const name : {"libcuda.so.1", "libnvidia-ml.so.1"}) {
    ASSERT_TRUE(LoadedLibrary(std::string(HOLDFAST_FAKE_GPUS "/") + name).loaded()) << dlerror();
  }
  const auto findings = check_gpus(root());
  ASSERT_GE(findings.size(), 2U);
  EXPECT_EQ(findings[0].text, "0: Fake 0, 1.00 GB, MIG is on");
  EXPECT_EQ(findings[1].text, "1: Fake 1, 1.00 GB");
}

TEST_F(Doctor, TellsTheLimitsOfTheControlGroup) {
  EXPECT_THAT(only(check_limits(root())).text, HasSubstr("no limit"));
  put("sys/fs/cgroup/memory.max", "2000000000\n");
  put("sys/fs/cgroup/cpu.max", "50000 100000\n");
  const auto findings = check_limits(root());
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_THAT(findings[0].text, HasSubstr("2.00 GB"));
  EXPECT_EQ(findings[1].verdict, Verdict::warning);
  EXPECT_THAT(findings[1].text, HasSubstr("0.5 cores"));
  put("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(check_limits(root()).size(), 1U);
}

TEST_F(Doctor, WarnsOfSignalsThatTheParentIgnores) {
  put("proc/self/status", "SigBlk:\t0000000000000000\nSigIgn:\t0000000000004001\n");
  const Finding both = only(check_signals(root()));
  EXPECT_EQ(both.verdict, Verdict::warning);
  EXPECT_THAT(both.text, HasSubstr("SIGTERM, SIGHUP"));
  put("proc/self/status", "SigIgn:\t0000000000000001\n");
  EXPECT_EQ(only(check_signals(root())).verdict, Verdict::ok) << "nohup";
}

TEST_F(Doctor, WarnsOfAGuessedGrace) {
  const Finding finding = only(check_grace(root()));
  EXPECT_EQ(finding.verdict, Verdict::warning);
  EXPECT_THAT(finding.text, HasSubstr("25s from SIGTERM to the end, a guess"));
  put(".dockerenv", "");
  EXPECT_THAT(only(check_grace(root())).text, HasSubstr("10s"));
  ASSERT_EQ(setenv("HOLDFAST_TERM_GRACE", "90s", 1), 0);
  EXPECT_EQ(only(check_grace(root())).verdict, Verdict::ok);
  unsetenv("HOLDFAST_TERM_GRACE");
}

TEST_F(Doctor, AMachineOfNoProviderSendsNothing) {
  FakeClock clock;
  const char* const before = std::getenv("HOLDFAST_SOURCES");
  const std::string sources = before == nullptr ? "" : before;
  ASSERT_EQ(setenv("HOLDFAST_SOURCES", "signal,file", 1), 0);
  EXPECT_THAT(only(check_metadata_service(clock, root())).text, HasSubstr("HOLDFAST_SOURCES names no"));
  unsetenv("HOLDFAST_SOURCES");
  EXPECT_THAT(only(check_metadata_service(clock, root())).text,
              HasSubstr("names none of EC2, Google, Azure"));
  if (!sources.empty()) setenv("HOLDFAST_SOURCES", sources.c_str(), 1);
}

TEST_F(Doctor, AVolumeThatIsNotThereFails) {
  EXPECT_EQ(check_volume(root() / "no/such").front().verdict, Verdict::failed);
  for (const Finding& finding : check_volume(root()))
    EXPECT_NE(finding.verdict, Verdict::failed) << finding.text;
}

}}  // namespace holdfast::test
