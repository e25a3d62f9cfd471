#include "statistics.h"

#include <cmath>
#include <cstdio>

namespace holdfast::bench {

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
