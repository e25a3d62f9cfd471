// Memory runs out, at requests of saves, starts and ends, once and for good: what was acknowledged stays, the
// failure is told in words, training goes on, and the process lives.
//
//   HOLDFAST_NIGHTLY=1             at every request; by day at every third
//   HOLDFAST_MEMORY_REPLAY=POINT   the one point that a failure names, in this process
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "holdfast/base/error.h"
#include "memory/failing_memory.h"
#include "memory/life.h"
#include "memory/series.h"
#include "support/nightly.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using namespace memory;

constexpr std::int64_t kSteps = 1600;  // more than one child's points take
constexpr char kFromThenOn[] = " from then on";

// In memory where that can be had: the fsyncs of thousands of saves are not what is tested here.
std::filesystem::path scratch() { return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : ""; }

std::string counts(const Report& report) {
  return std::to_string(report.fired) + " allocations failed of " + std::to_string(report.planned) +
         " planned, " + std::to_string(report.lost) + " lost, " + std::to_string(report.crashes) + " crashes";
}

// "saves from then on, request 71"
void replay(const std::string& point, const std::filesystem::path& folder,
            const std::vector<Digest>& straight) {
  const bool for_ever = point.find(kFromThenOn) != std::string::npos;
  const auto number = point.find_last_of(' ');
  ASSERT_NE(number, std::string::npos);
  for (const Kind& kind : kKinds) {
    if (!point.starts_with(kind.name)) continue;
    const auto series = kind.make(folder, straight, for_ever);
    series->begin();
    Point outcome;
    series->run(std::strtoull(point.c_str() + number, nullptr, 10), outcome);
    EXPECT_TRUE(outcome.fired);
    EXPECT_STREQ(outcome.problem, "");
  }
}

TEST(Memory, RunsOutAtAnyRequest) {
  const TemporaryFolder folder(scratch());
  const std::vector<Digest> straight = straight_run(kSteps);
  if (const char* point = std::getenv("HOLDFAST_MEMORY_REPLAY"); point != nullptr && *point != '\0') {
    return replay(point, folder.path(), straight);
  }
  Report all;
  for (const Kind& kind : kKinds) {
    const auto requests = requests_of([&] { return kind.make(folder.path(), straight, false); });
    EXPECT_GT(requests, 0u) << kind.name;
    for (const bool for_ever : {false, true}) {
      const std::string name = kind.name + std::string(for_ever ? kFromThenOn : "");
      const Report report = run_points(
          name, [&] { return kind.make(folder.path(), straight, for_ever); }, requests, nightly() ? 1 : 3,
          100);
      std::printf("  %-22s %s (%d not on the training thread), of %llu requests\n", name.c_str(),
                  counts(report).c_str(), report.elsewhere, static_cast<unsigned long long>(requests));
      std::fflush(stdout);
      all += report;
    }
  }
  std::printf("memory: %s\n", counts(all).c_str());
  for (const std::string& what : all.shown) ADD_FAILURE() << what;
  // Threads that meet otherwise make a request more or less: a history's last ones are not in every life.
  EXPECT_GE(all.fired, all.planned - all.planned / 200);
  EXPECT_EQ(all.lost + all.crashes + all.problems, 0);
  EXPECT_GE(all.fired, 600);
}

TEST(Memory, RunsOutUnderAFallingLimit) {
  const TemporaryFolder folder(scratch());
  const std::vector<Digest> straight = straight_run(8);
  Report all;
  for (const Kind& kind : kLimitedKinds) {
    all += run_points(
        kind.name, [&] { return kind.make(folder.path(), straight, true); }, kLimits, 1, 1);
  }
  // Threads want stacks of 8 MiB, images their size; the last points have room for neither.
  std::printf("memory: %d starts and saves under a falling limit (%d found no memory), %d lost, %d crashes\n",
              all.planned, all.elsewhere, all.lost, all.crashes);
  for (const std::string& what : all.shown) ADD_FAILURE() << what;
  EXPECT_EQ(all.lost + all.crashes + all.problems, 0);
  EXPECT_GT(all.elsewhere, 0);
}

}}  // namespace holdfast::test
