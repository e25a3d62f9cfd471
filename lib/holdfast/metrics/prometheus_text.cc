#include "holdfast/metrics/prometheus_text.h"

#include <algorithm>
#include <cmath>

#include "holdfast/base/bits.h"
#include "holdfast/base/utf8.h"

namespace holdfast { inline namespace v0_2 {
namespace {

std::string number(double value) {
  // Prometheus' own spellings, where shortest_decimal() gives nan and inf.
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return shortest_decimal(value);
}

}  // namespace

std::string prometheus_escaped(std::string_view text) {
  // Of a file with one byte that is no UTF-8, the collector takes nothing.
  if (!is_utf8(text)) return prometheus_escaped(printable(text));
  std::string out;
  for (const char character : text) {
    // The format wants exactly these three characters escaped in a label's value.
    if (character == '\n') {
      out += "\\n";
      continue;
    }
    if (character == '\\' || character == '"') out += '\\';
    out += character;
  }
  return out;
}

void PrometheusHistogram::observe(double value) {
  // It would turn the sum into NaN for the rest of the run.
  if (std::isnan(value)) return;
  ++count_;
  sum_ += value;
  // The first limit that is not below the value, because buckets include their upper bound ("le").
  const auto limit = std::lower_bound(limits_.begin(), limits_.end(), value);
  if (limit != limits_.end()) ++counts_[static_cast<std::size_t>(limit - limits_.begin())];
}

void PrometheusText::family(std::string_view name, std::string_view help, std::string_view type) {
  text_.append("# HELP ").append(name).append(" ").append(help).append("\n# TYPE ");
  text_.append(name).append(" ").append(type).append("\n");
}

void PrometheusText::sample(std::string_view name, std::string_view more_labels, double value) {
  text_.append(name).append("{").append(labels_);
  if (!more_labels.empty()) text_.append(",").append(more_labels);
  text_.append("} ").append(number(value)).append("\n");
}

void PrometheusText::labeled(std::string_view name, std::string_view label,
                             std::span<const LabeledValue> values) {
  for (const auto& [word, value] : values) {
    sample(name, std::string(label) + "=\"" + prometheus_escaped(word) + '"', value);
  }
}

void PrometheusText::gauge(std::string_view name, std::string_view help, double value) {
  family(name, help, "gauge");
  sample(name, {}, value);
}

void PrometheusText::counter(std::string_view name, std::string_view help, double value) {
  family(name, help, "counter");
  sample(name, {}, value);
}

void PrometheusText::gauges(std::string_view name, std::string_view help, std::string_view label,
                            std::span<const LabeledValue> values) {
  if (values.empty()) return;
  family(name, help, "gauge");
  labeled(name, label, values);
}

void PrometheusText::counters(std::string_view name, std::string_view help, std::string_view label,
                              std::span<const LabeledValue> values) {
  if (values.empty()) return;
  family(name, help, "counter");
  labeled(name, label, values);
}

void PrometheusText::histogram(std::string_view name, std::string_view help,
                               const PrometheusHistogram& values) {
  family(name, help, "histogram");
  const std::string bucket = std::string(name) + "_bucket";
  std::int64_t count = 0;
  for (std::size_t i = 0; i < values.limits_.size(); ++i) {
    // Buckets are cumulative in this format.
    count += values.counts_[i];
    sample(bucket, "le=\"" + number(values.limits_[i]) + '"', static_cast<double>(count));
  }
  // The format demands this bucket. It alone has the values above the last limit.
  sample(bucket, "le=\"+Inf\"", static_cast<double>(values.count_));
  sample(std::string(name) + "_sum", {}, values.sum_);
  sample(std::string(name) + "_count", {}, static_cast<double>(values.count_));
}

}}  // namespace holdfast::v0_2
