#include "holdfast/planning/cost_model.h"

#include <algorithm>

namespace holdfast { inline namespace v0_2 {
namespace {

// The nearest-rank percentile. Requires count > 0; reorders the values.
template <std::size_t N>
Duration percentile_95(std::array<std::int64_t, N>& values, std::size_t count) {
  // The smallest value that at least 95 % of all values do not exceed.
  const std::size_t rank = (count * 95 + 99) / 100 - 1;
  const auto found = values.begin() + static_cast<std::ptrdiff_t>(rank);
  // nth_element() is enough: only this one value is needed in its place.
  std::nth_element(values.begin(), found, values.begin() + static_cast<std::ptrdiff_t>(count));
  return Duration(*found);
}

}  // namespace

void CostModel::committed(Duration took) noexcept {
  const MutexLock lock(mutex_);
  commits_[commit_count_++ % kCommits] = took.count();
}

void CostModel::scale_commits(int factor) noexcept {
  const MutexLock lock(mutex_);
  // One rank writes alone what several wrote together, so each commit takes as many times longer.
  for (std::int64_t& commit : commits_) commit *= factor;
}

Costs CostModel::costs() const noexcept {
  Costs costs;
  {
    const MutexLock lock(mutex_);
    if (commit_count_ > 0) {
      // A copy, because percentile_95() reorders its argument.
      auto commits = commits_;
      costs.commit = percentile_95(commits, std::min(commit_count_, kCommits));
    }
  }
  // Acquire: the steps that the count covers are written.
  const std::uint32_t count = step_count_.load(std::memory_order_acquire);
  if (count > 0) {
    std::array<std::int64_t, kSteps> steps{};
    for (std::size_t i = 0; i < kSteps; ++i) steps[i] = steps_[i].load(std::memory_order_relaxed);
    costs.step = percentile_95(steps, std::min<std::size_t>(count, kSteps));
  }
  // Relaxed: one number, with nothing else to be seen beside it.
  if (const std::int64_t home = home_.load(std::memory_order_relaxed); home != kUnknown)
    costs.home = Duration(home);
  return costs;
}

}}  // namespace holdfast::v0_2
