// What a commit and a step cost here, as far as it was measured: what decides how long before a deadline the
// last commit has to begin.
//
// A commit's cost is copy, write and commit together, up to the acknowledgement: neither waiting for its turn
// nor what the program did between the step boundary and the copy. Kept are the last 20 commits and the last
// 64 steps; what is told is their 95th percentile (of 20 values the second largest, of fewer the largest).
// Before the first commit a probe stands in: a smaller file, written and synced the same way, whose time is
// scaled to the state's size. A volume that is slow for small files looks slower by it than it is, never
// quicker.
//
// Threads: stepped() by one thread, and it neither locks nor allocates; everything else by any. Errors: none.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include "holdfast/base/clock.h"

namespace holdfast::inline v1 {

struct Costs {
  std::optional<Duration> commit = {};  // nullopt: nothing is known
  Duration step{};                      // zero: none was measured
  Duration agreement{};                 // until all ranks have decided the same; zero for one
};

class CostModel {
 public:
  static constexpr std::size_t kCommits = 20;
  static constexpr std::size_t kSteps = 64;

  void committed(Duration took) noexcept;
  // From now on a commit costs so many times what was known.
  void scale_commits(int factor) noexcept;
  // Without what was waited for saves.
  void stepped(Duration took) noexcept {
    const std::uint32_t count = step_count_.load(std::memory_order_relaxed);
    steps_[count % kSteps].store(took.count(), std::memory_order_relaxed);
    step_count_.store(count + 1, std::memory_order_release);
  }
  // `bytes` were written and synced in `took`; the state has so many. Requires bytes > 0.
  void probed(Duration took, std::uint64_t bytes, std::uint64_t state_bytes) noexcept;

  // A commit was measured, or a probe.
  bool knows_commits() const noexcept;
  Costs costs() const noexcept;

 private:
  std::array<std::atomic<std::int64_t>, kSteps> steps_{};  // nanoseconds
  std::atomic<std::uint32_t> step_count_{0};

  mutable std::mutex mutex_;
  std::array<std::int64_t, kCommits> commits_{};
  std::size_t commit_count_ = 0;
  std::optional<Duration> probe_;
};

}  // namespace holdfast::inline v1
