// One row, measured: alone, or in turns with its peers.
//
// Errors: none for what a device cannot do, does not hold or fails at: the row says why it was not measured.
// Stopped when it was told to stop. Threads: one thread.
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
  std::string bn = "aten";         // of NHWC rows
  std::int64_t pixels = 0;         // 0: what the model is made for
  bool update = true;              // false: forward and backward alone
  bool tiny = false;               // WorkloadOptions::tiny
  std::int64_t full_batch = 0;     // at --scale 1, for advice
  int steps = 1;                   // timed
  double seconds = 0;              // as many steps as go into that; 0: `steps`
  int warm_up = 1;                 // steps before those
  std::optional<double> free;      // bytes that a row may take; absent: what is free
  std::vector<std::string> peers;  // kinds of bench/peers/precision_table.py
  std::filesystem::path root;      // of the sources, for peers
  std::function<bool()> stop;      // asked between steps
};

struct Stopped {};

// All but the device's peak. A row by a global batch takes smaller passes, and more of them, where its own do
// not fit; the row says so.
Row measure(const Cell& cell, const Setup& setup);

}  // namespace holdfast::bench
