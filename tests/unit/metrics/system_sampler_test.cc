#include "holdfast/metrics/system_sampler.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <vector>

#include "support/french_numbers.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;

TEST(SystemSampler, TellsMemoryAndCpuTime) {
  SystemSampler sampler;
  const SystemEvent first = sampler.sample();
  EXPECT_GT(first.resident_bytes, 1U << 20);
  EXPECT_EQ(first.cpu_cores, 0) << "nothing to compare with";
  const auto end = std::chrono::steady_clock::now() + 50ms;
  while (std::chrono::steady_clock::now() < end) {
  }
  std::vector<char> memory(64 << 20, 'x');
  const SystemEvent second = sampler.sample();
  EXPECT_GT(second.cpu_time, first.cpu_time);
  EXPECT_GT(second.cpu_cores, 0);
  EXPECT_GE(second.resident_bytes, first.resident_bytes + (60 << 20));
  EXPECT_EQ(memory.back(), 'x');
}

TEST(SystemSampler, TellsThemWhereAProgramsLocaleGroupsDigitsBySpaces) {
  const FrenchNumbers locale;
  const std::uint64_t bytes = SystemSampler().sample().resident_bytes;
  EXPECT_GT(bytes, 1U << 20);
  EXPECT_LT(bytes, std::uint64_t{1} << 40);
}

TEST(SystemSampler, TellsWhatGoesToTheDisk) {
  SystemSampler sampler;
  const SystemEvent before = sampler.sample();
  TemporaryFolder folder(HOLDFAST_BIN_DIR);  // tmpfs has no device
  write_text(folder.path() / "file", std::string(1 << 20, 'x'));
  const int file = open((folder.path() / "file").c_str(), O_RDWR | O_CLOEXEC);
  fsync(file);
  close(file);
  const SystemEvent after = sampler.sample();
  if (after.written_bytes == before.written_bytes)
    GTEST_SKIP() << "this system does not count a process's writes";
  EXPECT_GE(after.written_bytes, before.written_bytes + (1 << 20));
  EXPECT_GT(after.written_bytes_per_s, 0);
}

TEST(Nvml, WithoutADriverThereAreNoGpus) {
  EXPECT_TRUE(Nvml("libthere-is-no-such-library.so.1").read().empty());
}

TEST(Nvml, ALibraryWithoutItsFunctionsIsNone) { EXPECT_TRUE(Nvml("libm.so.6").read().empty()); }

TEST(Nvml, TellsMemoryAndUseOfEachGpu) {
  const Nvml nvml(HOLDFAST_FAKE_NVML);
  const std::vector<GpuFigures> gpus = nvml.read();
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_EQ(gpus[0].memory_used, 30U);
  EXPECT_EQ(gpus[1].memory_used, 60U);
  EXPECT_EQ(gpus[1].memory_total, 80U);
  EXPECT_EQ(gpus[0].utilization, 0.4);
  EXPECT_FALSE(gpus[1].utilization);
}

}}  // namespace holdfast::test
