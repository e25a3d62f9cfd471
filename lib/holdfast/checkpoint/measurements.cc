#include "holdfast/checkpoint/measurements.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// Few, because every checkpoint records them.
constexpr std::size_t kMostNames = 16;
constexpr std::size_t kMostValues = 64;
constexpr std::size_t kExtremes = kMostBest;  // at either end

// Sorted by value; NaN is left out.
std::vector<std::pair<double, std::int64_t>> ranked(const std::map<std::int64_t, double>& values) {
  std::vector<std::pair<double, std::int64_t>> ranking;
  for (const auto& [step, value] : values) {
    if (std::isfinite(value)) ranking.emplace_back(value, step);
  }
  std::sort(ranking.begin(), ranking.end());
  return ranking;
}

void drop_one(std::map<std::int64_t, double>& values) {
  std::set<std::int64_t> stay{values.rbegin()->first};
  const auto ranking = ranked(values);
  for (std::size_t i = 0; i < std::min(kExtremes, ranking.size()); ++i) {
    stay.insert(ranking[i].second);
    stay.insert(ranking[ranking.size() - 1 - i].second);
  }
  // The oldest of the rest goes: a policy may want the extremes.
  const auto oldest = std::find_if(values.begin(), values.end(),
                                   [&](const auto& value) { return !stay.contains(value.first); });
  values.erase(oldest);
}

}  // namespace

void Measurements::add(const std::string& name, std::int64_t step, double value) {
  if (!is_metric_name(name)) {
    throw UsageError("metric '" + name + "': a name is 1 to 100 letters, digits and _-./");
  }
  if (name == "loss") throw UsageError("metric 'loss': the loss of a step is reported with StepReport::loss");
  if (!values_.contains(name) && values_.size() >= kMostNames) {
    throw UsageError("metric '" + name + "': a run has at most " + std::to_string(kMostNames) +
                     " metrics besides the loss");
  }
  auto& values = values_[name];
  // No checkpoint has that value, so no policy can keep a file for it.
  if (const auto unsaved = unsaved_.find(name); unsaved != unsaved_.end()) {
    if (unsaved->second != step) values.erase(unsaved->second);
    unsaved_.erase(unsaved);
  }
  if (last_saved_ != step) unsaved_[name] = step;
  values[step] = value;
  if (values.size() > kMostValues) drop_one(values);
}

void Measurements::saved(std::int64_t step) {
  last_saved_ = step;
  std::erase_if(unsaved_, [&](const auto& metric) { return metric.second == step; });
}

void Measurements::saved_by(std::shared_ptr<SaveHandle::Shared> save) {
  settle();  // an earlier save of this step may have failed
  saved(save->step);
  open_.push_back(std::move(save));
}

void Measurements::settle() {
  std::erase_if(open_, [this](const auto& save) {
    const SaveStatus status = SaveHandle(save).status();
    if (is_open(status) && !save->lost.load(std::memory_order_acquire)) return false;
    if (status != SaveStatus::durable) not_saved(save->step);
    return true;
  });
}

void Measurements::not_saved(std::int64_t step) {
  if (last_saved_ == step) last_saved_.reset();
  for (auto& [name, values] : values_) {
    if (!values.contains(step)) continue;
    // The next save of this step may still record it.
    if (values.rbegin()->first == step) {
      unsaved_[name] = step;
    } else {
      values.erase(step);
    }
  }
}

bool Measurements::among_best(const KeepBest& policy, std::int64_t step) const {
  const auto values = values_.find(policy.metric);
  if (values == values_.end()) return false;
  const auto own = values->second.find(step);
  if (own == values->second.end() || !std::isfinite(own->second)) return false;
  // Where values are equal, the earlier ones come first.
  const auto ahead = std::count_if(values->second.begin(), values->second.end(), [&](const auto& other) {
    if (other.first == step || !std::isfinite(other.second)) return false;
    return policy.better == Better::higher ? other.second >= own->second : other.second <= own->second;
  });
  return ahead < policy.count;
}

}}  // namespace holdfast::v0_2
