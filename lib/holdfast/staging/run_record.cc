#include "holdfast/staging/run_record.h"

#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/utf8.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::size_t kLongestText = 16384;  // four times the longest path

std::vector<std::int64_t> flatten(const Ancestry& ancestry) {
  std::vector<std::int64_t> pairs;
  pairs.reserve(2 * ancestry.size());
  for (const auto& [attempt, step] : ancestry) {
    pairs.push_back(static_cast<std::int64_t>(attempt));
    pairs.push_back(step);
  }
  return pairs;
}

Ancestry unflatten(const std::vector<std::int64_t>& pairs) {
  Ancestry ancestry;
  bool well_formed = pairs.size() % 2 == 0;
  for (std::size_t i = 0; well_formed && i < pairs.size(); i += 2) {
    // The list comes from a file, which may name an attempt twice.
    well_formed = pairs[i] > 0 && pairs[i + 1] >= 0 &&
                  ancestry.emplace(static_cast<AttemptNumber>(pairs[i]), pairs[i + 1]).second;
  }
  if (!well_formed)
    throw RefusedError(std::string("attribute ") + kRunAncestry + " is not a list of attempts");
  return ancestry;
}

// These texts are only for people. A path, a host or an option's name may be any bytes, and must not fail
// saves.
std::string readable(const std::string& text) { return is_utf8(text) ? text : printable(text, kLongestText); }

std::vector<std::string> readable(std::vector<std::string> texts) {
  for (std::string& text : texts) text = readable(text);
  return texts;
}

// As three lists, because an attribute holds no nested values.
void put_metrics(Attributes& attributes, const Metrics& metrics) {
  std::vector<std::string> names;
  std::vector<std::int64_t> steps;
  std::vector<double> measured;
  for (const auto& [name, values] : metrics) {
    for (const auto& [step, value] : values) {
      names.push_back(name);
      steps.push_back(step);
      measured.push_back(value);
    }
  }
  if (names.empty()) return;
  attributes.set(kRunMetrics, std::move(names), Role::record);
  attributes.set(kRunMetricSteps, std::move(steps), Role::record);
  attributes.set(kRunMetricValues, std::move(measured), Role::record);
}

Metrics metrics_of(const Attributes& attributes) {
  Metrics metrics;
  if (!attributes.has(kRunMetrics)) return metrics;
  const auto& names = attributes.get_strings(kRunMetrics);
  const auto& steps = attributes.get_ints(kRunMetricSteps);
  const auto& values = attributes.get_doubles(kRunMetricValues);
  if (steps.size() != names.size() || values.size() != names.size()) {
    throw RefusedError(std::string("attributes ") + kRunMetrics + ", " + kRunMetricSteps + " and " +
                       kRunMetricValues + " differ in length");
  }
  for (std::size_t i = 0; i < names.size(); ++i) metrics[names[i]][steps[i]] = values[i];
  return metrics;
}

}  // namespace

void put_run_record(Attributes& attributes, const RunRecord& record) {
  const auto put = [&](const char* name, AttributeValue value) {
    attributes.set(name, std::move(value), Role::record);
  };
  put(kRunAttempt, static_cast<std::int64_t>(record.attempt));
  put(kRunAncestry, flatten(record.ancestry));
  // NaN has two meanings: a measured NaN, and no report. kRunLossTold tells them apart.
  put(kRunLoss, record.loss.value_or(std::numeric_limits<double>::quiet_NaN()));
  put(kRunLossTold, record.loss.has_value());
  put(kRunFinite, record.finite);
  put(kRunEvaluationDue, record.evaluation_due);
  if (record.after_loop) put(kRunAfterLoop, true);
  put(kRunOverrides, readable(record.overrides));
  put(kRunGrownFrom, readable(record.grown_from));
  if (!record.branches.empty()) put(kRunBranches, record.branches);
  put(kRunTime, record.time);
  put(kRunHost, readable(record.host));
  if (record.world_size > 1) put(kWorldSize, std::int64_t{record.world_size});
  put_metrics(attributes, record.metrics);
}

RunRecord run_record_of(const Attributes& attributes) {
  RunRecord record;
  const std::int64_t attempt = attributes.get_int(kRunAttempt);
  if (attempt <= 0) throw RefusedError(std::string("attribute ") + kRunAttempt + " is not positive");
  record.attempt = static_cast<AttemptNumber>(attempt);
  record.ancestry = unflatten(attributes.get_ints(kRunAncestry));
  // A number was reported, whatever else the file says. In files without kRunLossTold NaN means not reported.
  const double loss = attributes.get_double(kRunLoss);
  const bool nan_was_told = attributes.has(kRunLossTold) && attributes.get_bool(kRunLossTold);
  if (nan_was_told || !std::isnan(loss)) record.loss = loss;
  record.finite = attributes.get_bool(kRunFinite);
  record.evaluation_due = attributes.get_bool(kRunEvaluationDue);
  record.after_loop = attributes.has(kRunAfterLoop) && attributes.get_bool(kRunAfterLoop);
  record.overrides = attributes.get_strings(kRunOverrides);
  record.grown_from = attributes.get_string(kRunGrownFrom);
  if (attributes.has(kRunBranches)) record.branches = attributes.get_strings(kRunBranches);
  record.time = attributes.get_string(kRunTime);
  record.host = attributes.get_string(kRunHost);
  record.metrics = metrics_of(attributes);
  if (attributes.has(kWorldSize)) record.world_size = static_cast<int>(attributes.get_int(kWorldSize));
  return record;
}

Ancestry grown_from(const RunRecord& record, std::int64_t step) {
  Ancestry ancestry = record.ancestry;
  ancestry[record.attempt] = step;
  return ancestry;
}

std::vector<std::string> environment_differences(const Attributes& recorded, const Attributes& now) {
  std::map<std::string, std::pair<const Attribute*, const Attribute*>> both;
  for (const auto& [name, attribute] : recorded) {
    // The source knows no ranks, so the start compares the world size itself.
    if (name.starts_with(kEnvironmentPrefix) && name != kWorldSize) both[name].first = &attribute;
  }
  for (const auto& [name, attribute] : now) {
    if (name.starts_with(kEnvironmentPrefix)) both[name].second = &attribute;
  }
  std::vector<std::string> differences;
  for (const auto& [name, pair] : both) {
    const auto [before, after] = pair;
    if (before && after && same_bits(before->value, after->value)) continue;
    differences.push_back(name + ": " + (before ? to_text(before->value) : "absent") + " → " +
                          (after ? to_text(after->value) : "absent"));
  }
  return differences;
}

}}  // namespace holdfast::v0_2
