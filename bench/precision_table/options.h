// The command line. Threads: free functions.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "table.h"

namespace holdfast::bench {

struct Options {
  Choice choice;
  std::string variant = "torchvision";
  std::string device;           // "cpu" or "cuda"; empty: cuda where there is one
  std::optional<int> memory;    // of the published batch sizes; by the device
  std::optional<double> scale;  // by the device
  std::int64_t pixels = 0;      // 0: what the model is made for
  std::optional<int> steps;     // timed; by the device
  std::optional<int> warm_up;   // by the device
  int threads = 0;              // 0: Torch's choice
  std::string peak;             // empty: by the device's name
  std::filesystem::path published;
  std::filesystem::path output;  // without .csv, .json and .svg
};

// UsageError, in one line, for a command line that is wrong. nullopt: --help was asked for, and printed.
std::optional<Options> parse_options(int argc, char** argv);

}  // namespace holdfast::bench
