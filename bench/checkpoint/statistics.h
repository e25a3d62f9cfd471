// Spreads, and numbers as text. Threads: free functions, pure.
#pragma once

#include <cstddef>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "../shared/median.h"

namespace holdfast::bench {

// Median of the distances from the median: the precision of one repetition.
double spread(const std::vector<double>& values);

// Where a figure lies with 95 % confidence.
struct Interval {
  double low = 0;
  double high = 0;
  double width() const { return high - low; }
};
// By the percentile bootstrap: `figure` of 2,000 sets of `repetitions` indices, drawn with replacement. Always the same
// draws, so the same samples give the same interval.
Interval bootstrap(std::size_t repetitions,
                   const std::function<double(std::span<const std::size_t> drawn)>& figure);
Interval interval_of_median(const std::vector<double>& values, double scale = 1);
// Of median(above) / median(below), which were measured in pairs. Everything, if there are not as many of both.
Interval interval_of_ratio(const std::vector<double>& above, const std::vector<double>& below,
                           double scale = 1);

// A coin for the order of a pair of windows, so that a drift of the machine does not favour one of the two.
class Coin {
 public:
  bool operator()() { return (random_() >> 7 & 1) != 0; }

 private:
  std::minstd_rand random_{20251};
};

std::string fixed(double value, int digits);
std::string milliseconds(double seconds);           // "94.1 ms"
std::string megabytes(double bytes);                // "188.5 MB", decimal
std::string per_second(double bytes, double time);  // "2.01 GB/s"

}  // namespace holdfast::bench
