// The job for a Python peer, so that it starts where ours starts: its description, and the bits of parameters
// and inputs.
//
// Errors: Error if it cannot be written. Threads: one thread.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "training.h"

namespace holdfast::bench {

struct PeerJob {
  std::string model;  // of catalogue.h, or "mlp"
  std::string variant;
  std::int64_t classes = 0;  // 0: the variant's default
  bool tiny = false;         // WorkloadOptions::tiny
  c10::Device device = c10::Device(c10::kCPU);
};

// Writes `folder`/job.json and `folder`/values with the training's present values. Dropout is off.
void write_job(const PeerJob& job, const Training& training, const std::filesystem::path& folder);

}  // namespace holdfast::bench
