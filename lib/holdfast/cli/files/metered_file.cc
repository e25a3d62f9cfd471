#include "holdfast/cli/files/metered_file.h"

#include <CLI/CLI.hpp>
#include <algorithm>

namespace holdfast { inline namespace v0_2 {

void add_read_limit(CLI::App& command, double& megabytes_per_second) {
  command
      .add_option("--read-limit", megabytes_per_second,
                  "read at most so many MB/s, so that a training keeps its volume (default: no limit)")
      ->type_name("MB/S")
      ->check(CLI::PositiveNumber);
}

void ReadLimit::wait_for(std::uint64_t bytes) {
  if (rate_ <= 0) return;
  const auto takes =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(static_cast<double>(bytes) / rate_));
  SteadyTime until{};
  {
    const MutexLock lock(mutex_);
    // Time without reads is not saved up: after a pause the limit holds at once.
    free_at_ = std::max(free_at_, Clock::real().now()) + takes;
    until = free_at_;
  }
  const Duration left = until - Clock::real().now();
  // Outside the lock, because several threads share one limit.
  if (left > Duration::zero()) Clock::real().sleep_for(left);
}

std::size_t MeteredFile::count(std::size_t bytes) const {
  // Relaxed: it is only a figure for a progress line.
  if (done_ != nullptr) done_->fetch_add(bytes, std::memory_order_relaxed);
  limit_.wait_for(bytes);
  return bytes;
}

std::size_t MeteredFile::read_at(std::span<std::byte> buffer, std::uint64_t offset) const {
  // Counted and delayed after the read: only bytes that came are known, and the wait holds up the next read.
  return count(file_.read_at(buffer, offset));
}

std::size_t MeteredFile::read_uncached_at(std::span<std::byte> buffer, std::uint64_t offset) const {
  return count(file_.read_uncached_at(buffer, offset));
}

}}  // namespace holdfast::v0_2
