// The sinks of --metrics, --tensorboard and --prometheus.
#pragma once

#include <memory>
#include <vector>

#include "holdfast/metrics/sink.h"
#include "options.h"

namespace example {

// Of --metrics: CSV for a name that ends with .csv, otherwise JSON lines; null without the option. The training
// thread writes it, so that a saved step has its line. IoError if the file cannot be written.
std::unique_ptr<holdfast::MetricSink> make_metrics(const Options& options);

// Of --tensorboard and --prometheus: for BackgroundSinks. IoError as above.
std::vector<std::unique_ptr<holdfast::MetricSink>> make_exporters(const Options& options);

}  // namespace example
