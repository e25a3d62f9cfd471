// The command line. Threads: free functions.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "table.h"

namespace holdfast::bench {

struct Options {
  Choice choice;
  std::string variant = "torchvision";
  std::string bn = "aten";      // of NHWC rows: aten, cudnn or fused
  std::string device;           // "cpu" or "cuda"; empty: cuda where there is one
  std::optional<int> memory;    // of the published batch sizes; by the device
  std::optional<double> scale;  // by the device
  std::int64_t pixels = 0;      // 0: what the model is made for
  bool tiny_bert = false;
  bool update = true;
  std::optional<int> steps;       // timed; by the device
  double seconds = 0;             // instead of steps; 0: not given
  std::optional<int> warm_up;     // by the device
  std::optional<double> free_gb;  // a row may take; absent: what is free
  std::vector<std::string> peers;
  int threads = 0;   // 0: Torch's choice
  std::string peak;  // empty: by the device's name
  std::filesystem::path published;
  std::filesystem::path output;  // without .csv, .json and .svg
  bool fresh = false;
};

// UsageError, in one line, for a command line that is wrong. nullopt: --help was asked for, and printed.
std::optional<Options> parse_options(int argc, char** argv);

}  // namespace holdfast::bench
