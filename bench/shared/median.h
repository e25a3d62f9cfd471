// The middle of repetitions; of an even number, the mean of the two in the middle; NaN of nothing.
//
// Threads: a free function, pure.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

namespace holdfast::bench {

inline double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 != 0 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace holdfast::bench
