// One row, measured.
//
// Errors: none for what a device cannot do, does not hold or fails at: the row says why it was not measured.
// Threads: one thread.
#pragma once

#include <c10/core/Device.h>

#include "table.h"

namespace holdfast::bench {

struct Setup {
  c10::Device device = c10::Device(c10::kCPU);
  std::string variant;
  std::int64_t pixels = 0;  // 0: what the model is made for
  int steps = 1;
  int warm_up = 1;
};

// All but the device's peak.
Row measure(const Cell& cell, const Setup& setup);

}  // namespace holdfast::bench
