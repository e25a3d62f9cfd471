#include "statistics.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

namespace holdfast::bench {

double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 != 0 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double spread(const std::vector<double>& values) {
  const double middle = median(values);
  std::vector<double> distances;
  for (const double value : values) distances.push_back(std::abs(value - middle));
  return median(std::move(distances));
}

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string milliseconds(double seconds) {
  const double ms = seconds * 1e3;
  const double size = std::abs(ms);
  return fixed(ms, size < 0.995 ? 3 : size < 99.5 ? 1 : 0) + " ms";
}

std::string megabytes(double bytes) {
  return bytes < 1e9 ? fixed(bytes / 1e6, 1) + " MB" : fixed(bytes / 1e9, 2) + " GB";
}

std::string per_second(double bytes, double time) { return fixed(bytes / time / 1e9, 2) + " GB/s"; }

}  // namespace holdfast::bench
