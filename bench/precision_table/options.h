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
  bool default_rows = false;  // nothing was chosen: choice.rows is by the device
  std::string variant = "torchvision";
  std::string bn = "aten";      // for NHWC rows: aten or fused
  std::string device;           // "cpu" or "cuda"; empty: cuda if there is one
  std::optional<int> memory;    // GB of the GPU of the published batch sizes; empty: by the device
  std::optional<double> scale;  // empty: by the device
  std::int64_t pixels = 0;      // 0: the model's default
  bool tiny_bert = false;
  bool update = true;
  std::optional<int> steps;       // timed; empty: by the device
  double seconds = 0;             // instead of steps; 0: not given
  std::optional<int> warm_up;     // empty: by the device
  std::optional<double> free_gb;  // GB that a row may use; empty: what is free
  std::vector<std::string> peers;
  int threads = 0;   // 0: torch's default
  std::string peak;  // empty: by the device's name
  std::filesystem::path published;
  std::filesystem::path printed;  // speed-ups of the default figures; empty: of others
  std::filesystem::path output;   // without .csv, .json and .svg
  bool fresh = false;
};

// UsageError, one line, for a wrong command line. nullopt: --help was printed.
std::optional<Options> parse_options(int argc, char** argv);

}  // namespace holdfast::bench
