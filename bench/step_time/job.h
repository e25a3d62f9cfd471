// What ours and the peers train alike: model, weights, batch and rates. Ours draws them from seed 1 and
// writes them to files that the peers read.
//
// Errors: UsageError for a model that is not known, Error when a file cannot be written. Threads: one thread.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "../precision_table/training.h"

namespace holdfast::bench {

struct JobOptions {
  std::string model;  // "mlp", or one of picture_model_names()
  std::string variant = "torchvision";
  std::int64_t batch = 0;
  std::int64_t pixels = 0;  // 0 for the mlp
  c10::Device device = c10::Device(c10::kCPU);
};

// Writes `folder`/job.json and `folder`/values.
void write_job(const JobOptions& options, const std::filesystem::path& folder);
// A training that begins where the peers begin.
std::unique_ptr<Training> our_training(const JobOptions& options, bool amp);

}  // namespace holdfast::bench
