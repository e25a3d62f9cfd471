#include "metrics.h"

#include <filesystem>
#include <functional>
#include <string_view>

#include "holdfast/io/line_file.h"
#include "holdfast/metrics/csv.h"
#include "holdfast/metrics/exporters.h"
#include "holdfast/metrics/jsonl.h"

namespace example {

std::unique_ptr<holdfast::MetricSink> make_metrics(const Options& options) {
  if (options.metrics.empty()) return nullptr;
  holdfast::FileSystem& disk = holdfast::FileSystem::real();
  if (std::filesystem::path(options.metrics).extension() == ".csv") {
    return std::make_unique<holdfast::CsvSink>(disk, options.metrics);
  }
  auto file = std::make_shared<holdfast::LineFile>(disk, options.metrics);
  const auto sync = [file, &disk, folder = holdfast::folder_of(options.metrics)] {
    file->file().sync();
    if (const auto named = disk.open_directory(folder, false)) named->sync();
  };
  // A pipe or a terminal keeps nothing.
  const bool keeps = std::filesystem::is_regular_file(options.metrics);
  return std::make_unique<holdfast::JsonlSink>(
      options.metrics, [file](std::string_view line) { file->append(line); },
      keeps ? std::function<void()>(sync) : nullptr);
}

std::vector<std::unique_ptr<holdfast::MetricSink>> make_exporters(const Options& options) {
  holdfast::FileSystem& disk = holdfast::FileSystem::real();
  std::vector<std::unique_ptr<holdfast::MetricSink>> sinks;
  if (!options.tensorboard.empty()) sinks.push_back(holdfast::tensorboard_sink(disk, options.tensorboard));
  if (!options.prometheus.empty()) {
    const std::filesystem::path run = options.checkpointer.directory.lexically_normal();
    sinks.push_back(holdfast::prometheus_sink(
        disk, options.prometheus,
        {.run = (run.has_filename() ? run : run.parent_path()).filename().string()}));
  }
  return sinks;
}

}  // namespace example
