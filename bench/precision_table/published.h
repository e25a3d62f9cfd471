// Figures that others published, to stand beside ours.
//
// A CSV file: lines that begin with # are remarks; the first other line names the columns,
//   model,device,precision,gpus,images_per_second,source
// Errors: UsageError naming file and line. Threads: free functions.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace holdfast::bench {

struct Published {
  std::string model;
  std::string device;
  std::string precision;
  int gpus = 1;
  double images_per_second = 0;  // of all of them
  std::string source;
  double of_one_gpu() const { return images_per_second / gpus; }
};

std::vector<Published> read_published(const std::filesystem::path& file);

}  // namespace holdfast::bench
