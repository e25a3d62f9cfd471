// The middle of repetitions; of an even number, the upper one of the two.
//
// Requires: not empty. Threads: a free function, pure.
#pragma once

#include <algorithm>
#include <vector>

namespace holdfast::bench {

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace holdfast::bench
