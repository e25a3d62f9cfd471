// The text of a Prometheus file: families with HELP and TYPE once each, samples without timestamps, a newline
// at the end. node_exporter's collector refuses everything else.
//
//   PrometheusText text("run=\"rn50\",rank=\"0\"");
//   text.gauge("holdfast_train_loss", "Loss of the last step.", 0.5);
//
// Errors: none. Threads: one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace holdfast { inline namespace v0_2 {

// Escaped for a label's value.
std::string prometheus_escaped(std::string_view text);

// Counts of values up to each limit.
class PrometheusHistogram {
 public:
  explicit PrometheusHistogram(std::vector<double> limits)
      : limits_(std::move(limits)), counts_(limits_.size()) {}

  void observe(double value);

 private:
  friend class PrometheusText;

  std::vector<double> limits_;
  std::vector<std::int64_t> counts_;  // of values up to the limit and above the one before
  std::int64_t count_ = 0;
  double sum_ = 0;
};

// One more label, and the value that belongs to it.
using LabeledValue = std::pair<std::string, double>;

class PrometheusText {
 public:
  // `labels` stand in every sample: name="value", separated by commas, values escaped.
  explicit PrometheusText(std::string labels) : labels_(std::move(labels)) {}

  void gauge(std::string_view name, std::string_view help, double value);
  void counter(std::string_view name, std::string_view help, double value);
  // A family whose samples differ in `label`. None: the family is left out.
  void gauges(std::string_view name, std::string_view help, std::string_view label,
              std::span<const LabeledValue> values);
  void counters(std::string_view name, std::string_view help, std::string_view label,
                std::span<const LabeledValue> values);
  void histogram(std::string_view name, std::string_view help, const PrometheusHistogram& values);

  const std::string& text() const { return text_; }

 private:
  void family(std::string_view name, std::string_view help, std::string_view type);
  void sample(std::string_view name, std::string_view more_labels, double value);
  void labeled(std::string_view name, std::string_view label, std::span<const LabeledValue> values);

  std::string labels_;
  std::string text_;
};

}}  // namespace holdfast::v0_2
