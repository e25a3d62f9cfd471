// What a peer in Python gets to begin where ours begins: the job in words, and the values of parameters and
// inputs, bit for bit.
//
// Errors: Error when it cannot be written. Threads: one thread.
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
  std::int64_t classes = 0;  // 0: the variant's own
  bool tiny = false;         // WorkloadOptions::tiny
  c10::Device device = c10::Device(c10::kCPU);
};

// Writes `folder`/job.json and `folder`/values, of the training as it is now. Dropout is off there.
void write_job(const PeerJob& job, const Training& training, const std::filesystem::path& folder);

// A folder of one's own, gone with the object.
class JobFolder {
 public:
  JobFolder();
  ~JobFolder();
  JobFolder(const JobFolder&) = delete;
  JobFolder& operator=(const JobFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace holdfast::bench
