// Figures that others published, to stand beside ours, and how much faster they say one device is than
// another.
//
// A CSV file: lines that begin with # are remarks; the first other line names the columns,
//   model,device,precision,gpus,samples_per_second,source
// (images_per_second is the older name of the fifth). The last field may hold commas.
// Errors: UsageError naming file and line. Threads: free functions.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace holdfast::bench {

struct Published {
  std::string model;
  std::string device;
  std::string precision;
  int gpus = 1;
  double samples_per_second = 0;  // of all of them
  std::string source;
  double of_one_gpu() const { return samples_per_second / gpus; }
};

std::vector<Published> read_published(const std::filesystem::path& file);

// Their devices, in the order of the file.
std::vector<std::string> devices_of(const std::vector<Published>& all);

// What belongs beside a figure of ours: the same precision, or the one that the table has in its place (FP32
// and TF32 stand for each other, FP16 for BF16). nullopt: nothing was published.
std::optional<Published> beside(const std::vector<Published>& all, const std::string& model,
                                const std::string& device, const std::string& precision);

// What a table of two generations shows: how many times as fast one GPU is, with which numbers.
struct SpeedUp {
  std::string model;
  std::string of, over;  // "A100 fp16"
  double times = 0;
};
// All that the figures allow: each device's FP16 over its FP32 or TF32, and each device over those before it
// in the same kind of numbers.
std::vector<SpeedUp> speed_ups_of(const std::vector<Published>& all);

// One GPU of `device` beside one of `over`, in the numbers that beside() finds. nullopt: one of them is
// missing.
std::optional<double> speed_up(const std::vector<Published>& all, const std::string& model,
                               const std::string& device, const std::string& over,
                               const std::string& precision);

}  // namespace holdfast::bench
