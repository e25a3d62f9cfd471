// What a commit and a step cost on this machine, as far as measured. The planner uses it to decide how long
// before a deadline the last commit must begin.
//
// A commit's cost is copy, write and commit, up to the acknowledgement. It excludes the wait for a turn, and
// the program's own work between the step boundary and the copy. costs() returns the 95th percentile of the
// last 20 commits and of the last 64 steps: of 20 values the second largest, of fewer commits the largest.
//
// Errors: none. Threads: stepped() by one thread, without a lock or an allocation; the others by any.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "holdfast/base/clock.h"
#include "holdfast/base/export.h"
#include "holdfast/base/mutex.h"

namespace holdfast { inline namespace v0_2 {

struct Costs {
  std::optional<Duration> commit = {};  // nullopt: unknown
  Duration step{};                      // zero: not measured
  Duration agreement{};                 // until all ranks have made the same decision; zero for one rank
  // From durable here to home (a mirror's second place), as the mirror measured it; nullopt: no mirror, or
  // nothing measured.
  std::optional<Duration> home = {};
};

class HOLDFAST_EXPORT CostModel {
 public:
  static constexpr std::size_t kCommits = 20;
  static constexpr std::size_t kSteps = 64;

  void committed(Duration took) noexcept;
  // Multiplies all measured commits by `factor`: one rank writes alone now.
  void scale_commits(int factor) noexcept;
  // `took`: one step without waits for saves.
  void stepped(Duration took) noexcept {
    const std::uint32_t count = step_count_.load(std::memory_order_relaxed);
    steps_[count % kSteps].store(took.count(), std::memory_order_relaxed);
    step_count_.store(count + 1, std::memory_order_release);
  }
  // From durable here to home; nullopt: not measured.
  void home_takes(std::optional<Duration> took) noexcept {
    home_.store(took ? took->count() : kUnknown, std::memory_order_relaxed);
  }
  Costs costs() const noexcept;

 private:
  static constexpr std::int64_t kUnknown = -1;

  std::atomic<std::int64_t> home_{kUnknown};               // nanoseconds
  std::array<std::atomic<std::int64_t>, kSteps> steps_{};  // nanoseconds
  std::atomic<std::uint32_t> step_count_{0};

  mutable Mutex mutex_;
  std::array<std::int64_t, kCommits> commits_ HOLDFAST_GUARDED_BY(mutex_){};
  std::size_t commit_count_ HOLDFAST_GUARDED_BY(mutex_) = 0;
};

}}  // namespace holdfast::v0_2
