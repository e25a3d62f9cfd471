#include "holdfast/store/retention.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// Rule 4: a file of which this attempt knows that it is good, and one to fall back to.
constexpr int kLeastTrusted = 2;
constexpr std::size_t kLongestMetricName = 100;

void check_one(const KeepLast& policy) {
  if (policy.count >= 2) return;
  throw UsageError("keeping the last " + std::to_string(policy.count) +
                   ": at least 2 checkpoints are needed, because a save must not risk the only copy");
}

void check_one(const KeepEvery& policy) {
  if (policy.steps >= 1) return;
  throw UsageError("keeping a checkpoint every " + std::to_string(policy.steps) +
                   " steps: at least 1 is needed");
}

void check_one(const KeepBest& policy) {
  if (!is_metric_name(policy.metric)) {
    throw UsageError("keeping the best by '" + policy.metric +
                     "': the name of a metric is 1 to 100 letters, digits and _-./");
  }
  if (policy.count < 1) {
    throw UsageError("keeping the best " + std::to_string(policy.count) + " by " + policy.metric +
                     ": at least 1 is needed");
  }
  // The loss of each step stands in its own file.
  if (policy.count > kMostBest && policy.metric != "loss") {
    throw UsageError("keeping the best " + std::to_string(policy.count) + " by " + policy.metric +
                     ": at most " + std::to_string(kMostBest) +
                     ", because later files record no more values");
  }
}

void check_one(const KeepNewer& policy) {
  if (policy.age <= Duration::zero()) {
    throw UsageError("keeping what is newer than " + format_duration(policy.age) +
                     ": a time greater than 0 is needed");
  }
}

class Staying {
 public:
  explicit Staying(const RetentionView& view) : view_(view) {}

  void want(FileId id, const std::string& reason) { reasons_.emplace(id, reason); }

  void add(const KeepLast& /*counted by Retention::last*/) {}

  void add(const KeepEvery& policy) {
    const std::string reason = "every " + format_count(policy.steps);
    std::set<std::int64_t> begun;
    // From the oldest, so that the first checkpoint of each stretch is the one that stays.
    for (auto id = view_.present.rbegin(); id != view_.present.rend(); ++id) {
      const std::int64_t stretch = id->step / policy.steps;
      // Stretch 0 lies before the first multiple, so no checkpoint opens it.
      if (stretch > 0 && begun.insert(stretch).second) want(*id, reason);
    }
  }

  void add(const KeepBest& policy) {
    std::vector<std::pair<double, FileId>> ranked;
    for (const auto& [id, facts] : view_.facts) {
      const auto value = facts.metrics.find(policy.metric);
      // A loss that is not a number would otherwise be the smallest of all comparisons.
      if (value == facts.metrics.end() || !std::isfinite(value->second) || !facts.finite) continue;
      // Negated for "higher", so that one order serves both.
      ranked.emplace_back(policy.better == Better::higher ? -value->second : value->second, id);
    }
    std::sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
      // Where values are equal, the newer checkpoint is better.
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    const std::size_t count = std::min(ranked.size(), static_cast<std::size_t>(policy.count));
    for (std::size_t i = 0; i < count; ++i) {
      const FileId id = ranked[i].second;
      want(id, "best " + policy.metric + " (" + format_number(view_.facts.at(id).metrics.at(policy.metric)) +
                   ")");
    }
  }

  void add(const KeepNewer& policy) {
    for (const auto& [id, facts] : view_.facts) {
      if (facts.age && *facts.age <= policy.age) want(id, "newer than " + format_duration(policy.age));
    }
  }

  std::map<FileId, std::string> take() { return std::move(reasons_); }

 private:
  const RetentionView& view_;
  std::map<FileId, std::string> reasons_;
};

}  // namespace

Retention& Retention::operator|=(const Retention& other) {
  const std::vector<KeepPolicy> added = other.policies_;  // `other` may be *this
  policies_.insert(policies_.end(), added.begin(), added.end());
  return *this;
}

Retention operator|(Retention a, const Retention& b) { return a |= b; }

int Retention::last() const {
  std::optional<int> most;
  for (const KeepPolicy& policy : policies_) {
    // The widest policy wins, because together the policies keep everything that one of them keeps.
    if (const auto* last = std::get_if<KeepLast>(&policy)) most = std::max(most.value_or(0), last->count);
  }
  return most.value_or(KeepLast{}.count);
}

bool Retention::reads_content() const {
  return std::any_of(policies_.begin(), policies_.end(), [](const KeepPolicy& policy) {
    return std::holds_alternative<KeepBest>(policy) || std::holds_alternative<KeepNewer>(policy);
  });
}

void Retention::check() const {
  for (const KeepPolicy& policy : policies_) std::visit([](const auto& one) { check_one(one); }, policy);
}

bool is_metric_name(const std::string& name) {
  // No comma, colon or equals sign, so that every policy has a form as text (retention_text.h).
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./";
  return !name.empty() && name.size() <= kLongestMetricName &&
         name.find_first_not_of(kAllowed) == std::string::npos;
}

std::map<FileId, std::string> staying(const RetentionView& view, const Retention& keep) {
  Staying stay(view);
  const int last = keep.last();
  int kept = 0;
  int trusted = 0;
  for (const FileId id : view.present) {
    if (kept++ < last) stay.want(id, "last " + std::to_string(last));
    // Only a file that is older than an acknowledged one may go (rule 4).
    if (id >= view.newest_acknowledged) stay.want(id, "not older than the newest acknowledged");
    if (view.trusted.contains(id) && trusted++ < kLeastTrusted)
      stay.want(id, "one of two that were verified");
  }
  for (const KeepPolicy& policy : keep.policies()) {
    std::visit([&](const auto& one) { stay.add(one); }, policy);
  }
  if (view.newest_finite) stay.want(*view.newest_finite, "newest finite");
  // The files that were not verified may all be damaged, so none may go.
  if (trusted < kLeastTrusted) {
    for (const FileId id : view.present) stay.want(id, "fewer than two were verified");
  }
  return stay.take();
}

std::vector<FileId> superfluous(const RetentionView& view, const Retention& keep) {
  const auto stay = staying(view, keep);
  std::vector<FileId> rest;
  // From the oldest on: wherever a crash ends the deletions, the newer files still stand.
  for (auto id = view.present.rbegin(); id != view.present.rend(); ++id) {
    if (!stay.contains(*id)) rest.push_back(*id);
  }
  return rest;
}

}}  // namespace holdfast::v0_2
