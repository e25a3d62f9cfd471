#include "metrics.h"

#include <filesystem>
#include <string_view>

#include "holdfast/io/line_file.h"
#include "holdfast/metrics/csv.h"
#include "holdfast/metrics/jsonl.h"

namespace example {

std::unique_ptr<holdfast::MetricSink> make_metrics(const Options& options) {
  holdfast::FileSystem& disk = holdfast::FileSystem::real();
  if (std::filesystem::path(options.metrics).extension() == ".csv") {
    const bool branch = !options.checkpointer.start.resume_from.empty();
    return std::make_unique<holdfast::CsvSink>(disk, options.metrics,
                                               holdfast::CsvOptions{.keep_dropped = branch});
  }
  auto file = std::make_shared<holdfast::LineFile>(disk, options.metrics);
  return std::make_unique<holdfast::JsonlSink>(options.metrics,
                                               [file](std::string_view line) { file->append(line); });
}

}  // namespace example
