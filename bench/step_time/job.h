// The training that Holdfast and its peers share: model, weights, batch and rates, drawn from seed 1.
//
// Errors: UsageError for an unknown model. Threads: one thread.
#pragma once

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

constexpr std::int64_t kJobClasses = 10;

// Starts where the peers start that read the files of write_job(). `amp`: BF16 on a CPU, FP16 on a GPU, in
// NHWC; the values are the same.
std::unique_ptr<Training> our_training(const JobOptions& options, bool amp);

}  // namespace holdfast::bench
