// Sinks that other programs read: TensorBoard's event files, and Prometheus' text file.
//
//   sinks.push_back(tensorboard_sink(FileSystem::real(), "run/tensorboard"));
//   const auto file = "/var/lib/node_exporter/run1.prom";
//   sinks.push_back(prometheus_sink(FileSystem::real(), file, {.run = "run1"}));
//
// docs/metrics.md lists tags and names. Both may wait for a disk: give them to BackgroundSinks
// (background.h).
//
// Errors: tensorboard_sink throws nothing; prometheus_sink throws IoError if the name belongs to something
// else than a regular file. A later error is logged once, and the sink then writes nothing more.
// Threads: one thread at a time. Durability: TensorBoard's points, by row_sync() through BackgroundSinks.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "holdfast/base/clock.h"
#include "holdfast/base/export.h"
#include "holdfast/io/file_system.h"
#include "holdfast/metrics/sink.h"

namespace holdfast { inline namespace v0_2 {

struct TensorBoardOptions {
  // Writes at least that often, and at each commit. A killed process loses what is not written.
  Duration flush_every = std::chrono::seconds(10);
};

// begin() creates a new file in `directory`, and missing folders. Readers then drop what earlier attempts
// wrote of steps after the resumed one.
HOLDFAST_EXPORT std::unique_ptr<MetricSink> tensorboard_sink(FileSystem& file_system,
                                                             std::filesystem::path directory,
                                                             const TensorBoardOptions& options = {},
                                                             const Clock& clock = Clock::real());

struct PrometheusOptions {
  std::string run;  // the label `run`; empty: the name of the file without extension
  int rank = 0;     // the label `rank`
  Duration every = std::chrono::seconds(10);  // the file is replaced at most that often, and at the end
};

// Replaces `file` by rename: a reader sees the old one or the new one. A first one has the mode 0644, because
// the collector is another user; later ones keep mode and owner. Its folder must exist.
HOLDFAST_EXPORT std::unique_ptr<MetricSink> prometheus_sink(FileSystem& file_system,
                                                            std::filesystem::path file,
                                                            const PrometheusOptions& options = {},
                                                            const Clock& clock = Clock::real());

}}  // namespace holdfast::v0_2
