// Measures one row, alone or in turns with its peers.
//
// Errors: none if a device cannot do it, lacks memory or fails: the row says why it was not measured. Throws
// Stopped when it is told to stop. Threads: one thread.
#pragma once

#include <c10/core/Device.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "table.h"

namespace holdfast::bench {

struct Setup {
  c10::Device device = c10::Device(c10::kCPU);
  std::string variant;
  std::string bn = "aten";         // for NHWC rows
  std::int64_t pixels = 0;         // 0: the model's default
  bool update = true;              // false: forward and backward only
  bool tiny = false;               // WorkloadOptions::tiny
  std::int64_t full_batch = 0;     // at --scale 1, for advice
  int steps = 1;                   // number of timed steps
  double seconds = 0;              // times as many steps as fit; 0: `steps`
  int warm_up = 1;                 // steps before the timed ones
  std::optional<double> free;      // bytes that a row may use; empty: what is free
  std::vector<std::string> peers;  // kinds of bench/peers/precision_table.py
  std::filesystem::path root;      // of the sources, for peers
  std::function<bool()> stop;      // called between steps
};

struct Stopped {};

// Measures everything except the device's peak. If the passes of a row with a global batch do not fit, it
// takes more and smaller ones, and the row says so.
Row measure(const Cell& cell, const Setup& setup);

}  // namespace holdfast::bench
