// The moment of a measurement, and work of a fixed size.
//
// Threads: any.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

namespace holdfast::bench {

// Seconds of the machine's steady clock, which all its processes share.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// About a millisecond of one core, whatever else it does.
inline float fixed_arithmetic() {
  static thread_local std::vector<float> values(16384, 1.0F);
  float sum = 0;
  for (int round = 0; round < 64; ++round) {
    for (float& value : values) value = value * 0.999F + 0.001F;
    sum += values[static_cast<std::size_t>(round)];
  }
  return sum;
}

}  // namespace holdfast::bench
