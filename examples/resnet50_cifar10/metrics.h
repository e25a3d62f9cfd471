// The sink of --metrics; the file's name selects the format.
#pragma once

#include <memory>

#include "holdfast/metrics/sink.h"
#include "options.h"

namespace example {

// CSV for a name that ends with .csv, otherwise JSON lines. IoError if the file cannot be written.
std::unique_ptr<holdfast::MetricSink> make_metrics(const Options& options);

}  // namespace example
