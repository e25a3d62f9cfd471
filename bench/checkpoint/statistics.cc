#include "statistics.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

namespace holdfast::bench {

double spread(const std::vector<double>& values) {
  const double middle = median(values);
  std::vector<double> distances;
  for (const double value : values) distances.push_back(std::abs(value - middle));
  return median(std::move(distances));
}

namespace {

constexpr int kResamplings = 2000;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kOutside = 0.025;  // on either side

std::vector<double> picked(const std::vector<double>& values, std::span<const std::size_t> drawn) {
  std::vector<double> out;
  out.reserve(drawn.size());
  for (const std::size_t i : drawn) out.push_back(values[i]);
  return out;
}

}  // namespace

Interval bootstrap(std::size_t repetitions,
                   const std::function<double(std::span<const std::size_t> drawn)>& figure) {
  if (repetitions < 3) return {-kInfinity, kInfinity};
  std::mt19937_64 random(1);
  std::uniform_int_distribution<std::size_t> any(0, repetitions - 1);
  std::vector<double> figures;
  std::vector<std::size_t> drawn(repetitions);
  for (int i = 0; i < kResamplings; ++i) {
    for (std::size_t& index : drawn) index = any(random);
    figures.push_back(figure(drawn));
  }
  std::sort(figures.begin(), figures.end());
  const auto at = [&](double share) {
    return figures[static_cast<std::size_t>(share * static_cast<double>(figures.size() - 1))];
  };
  return {at(kOutside), at(1 - kOutside)};
}

Interval interval_of_median(const std::vector<double>& values, double scale) {
  return bootstrap(values.size(),
                   [&](std::span<const std::size_t> drawn) { return median(picked(values, drawn)) * scale; });
}

Interval interval_of_ratio(const std::vector<double>& above, const std::vector<double>& below, double scale) {
  if (above.size() != below.size()) return {-kInfinity, kInfinity};
  return bootstrap(above.size(), [&](std::span<const std::size_t> drawn) {
    return median(picked(above, drawn)) / median(picked(below, drawn)) * scale;
  });
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
