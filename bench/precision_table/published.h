// Published figures to compare with, and the speed-ups between devices that they show.
//
// A CSV file. Lines that begin with # are comments. The first other line names the columns:
//   model,device,precision,gpus,samples_per_second,source
// The fifth column may also be named images_per_second. The last field may contain commas. Speed-ups that a
// source prints without the speeds are a second file: model,gpus,of,over,precision,times,source. Errors:
// UsageError with file and line. Threads: free functions.
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
  double samples_per_second = 0;  // of all GPUs together
  std::string source;
  double of_one_gpu() const { return samples_per_second / gpus; }
};

std::vector<Published> read_published(const std::filesystem::path& file);

// As the source prints it, of machines with equally many GPUs.
struct PrintedSpeedUp {
  std::string model;
  int gpus = 1;
  std::string of, over;  // machines: "P4d", "P3dn"
  std::string precision;
  double times = 0;
  std::string source;
};
std::vector<PrintedSpeedUp> read_printed_speed_ups(const std::filesystem::path& file);

// The devices, in the order of the file.
std::vector<std::string> devices_of(const std::vector<Published>& all);

// The figure to compare with ours: the same precision, or the one that the table has instead (FP32 and TF32
// replace each other, FP16 replaces BF16). nullopt: none was published.
std::optional<Published> beside(const std::vector<Published>& all, const std::string& model,
                                const std::string& device, const std::string& precision);

// A speed-up between two devices or precisions, for one GPU.
struct SpeedUp {
  std::string model;
  std::string of, over;  // "A100 fp16"
  double times = 0;
};
// All speed-ups in the figures: each device's FP16 over its FP32 or TF32, and each device over earlier ones
// in the same kind of precision. Both figures are of one publisher (the source up to its first comma).
std::vector<SpeedUp> speed_ups_of(const std::vector<Published>& all);

// One GPU of `device` compared with one of `over`, by the first publisher who has both figures (those of
// beside() among that publisher's). nullopt: nobody has.
std::optional<double> speed_up(const std::vector<Published>& all, const std::string& model,
                               const std::string& device, const std::string& over,
                               const std::string& precision);

}  // namespace holdfast::bench
