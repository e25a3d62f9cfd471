#include "holdfast/format/internal/throttle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "support/fake_clock.h"
#include "support/fault_file_system.h"
#include "unit/format/checkpoint_maker.h"

namespace holdfast::test { namespace {

using internal::Stopped;
using internal::Throttle;
using std::chrono::seconds;

constexpr std::uint64_t kMega = 1'000'000;

Made one_large() { return make_snapshot({{"model/a", DType::float32, {5 << 20}}}, small_attributes()); }

TEST(Throttle, BytesTakeTheTimeThatTheLimitGivesThem) {
  FakeClock clock;
  Throttle throttle(10, clock, nullptr);
  const Stopped stopped{false};
  for (int i = 0; i < 11; ++i) throttle.take(kMega, stopped);
  EXPECT_EQ(clock.slept(), seconds(1));  // the first goes at once
}

TEST(Throttle, IdleTimeSavesNothingUp) {
  FakeClock clock;
  Throttle throttle(1, clock, nullptr);
  const Stopped stopped{false};
  throttle.take(kMega, stopped);
  clock.advance(seconds(100));
  throttle.take(kMega, stopped);
  throttle.take(kMega, stopped);
  EXPECT_EQ(clock.slept(), seconds(101));
}

TEST(Throttle, ALiftedLimitAndAFailureElsewhereEndTheWait) {
  FakeClock clock;
  std::atomic<bool> limit_lifted{false};
  Throttle throttle(1, clock, &limit_lifted);
  Stopped stopped{false};
  throttle.take(100 * kMega, stopped);
  clock.plan(seconds(3), [&] { limit_lifted = true; });
  throttle.take(kMega, stopped);
  EXPECT_LE(clock.slept(), seconds(3) + std::chrono::milliseconds(50));
  limit_lifted = false;
  clock.plan(seconds(2), [&] { stopped = true; });
  throttle.take(kMega, stopped);
  EXPECT_LE(clock.slept(), seconds(5) + std::chrono::milliseconds(100));
}

TEST(Throttle, BlocksAreWhatFiftyMillisecondsTake) {
  FakeClock clock;
  const std::atomic<bool> limit_lifted{true};
  EXPECT_EQ(Throttle(0, clock, nullptr).block(kTransferBlock), kTransferBlock);
  EXPECT_EQ(Throttle(1000, clock, nullptr).block(kTransferBlock), kTransferBlock);
  EXPECT_EQ(Throttle(100, clock, nullptr).block(kTransferBlock), 5 * kMega / 4096 * 4096);
  EXPECT_EQ(Throttle(0.5, clock, nullptr).block(kTransferBlock), 256u << 10);
  EXPECT_EQ(Throttle(100, clock, &limit_lifted).block(kTransferBlock), kTransferBlock);
}

TEST(Throttle, AnImageTakesItsBytesTimeAndIsTheSame) {
  const Made made = one_large();
  FakeClock clock;
  MemoryFileSystem disk;
  write(disk, "/fast", made);
  FaultFileSystem watched(disk);
  const auto file = watched.open_file("/slow", OpenMode::create_direct);
  write_image(*file, *made.snapshot, *made.plan, {.threads = 1, .write_limit = 7, .clock = &clock});
  EXPECT_EQ(disk.get("/slow"), disk.get("/fast"));
  std::uint64_t written = 0;
  std::uint64_t largest = 0;
  for (const Operation& operation : watched.log()) {
    if (operation.kind != Op::write) continue;
    written += operation.length;
    largest = std::max(largest, operation.length);
  }
  EXPECT_LE(largest, 350'000u);
  const double least = static_cast<double>(written - largest) / 7e6;  // the last is not waited for
  EXPECT_GE(std::chrono::duration<double>(clock.slept()).count(), least * 0.999);
  EXPECT_LE(std::chrono::duration<double>(clock.slept()).count(), static_cast<double>(written) / 7e6 + 0.1);
}

}}  // namespace holdfast::test
