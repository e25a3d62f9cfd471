// Spreads, and numbers as text. Threads: free functions, pure.
#pragma once

#include <string>
#include <vector>

#include "../shared/median.h"

namespace holdfast::bench {

// Median of the distances from the median: the precision of one repetition.
double spread(const std::vector<double>& values);

std::string fixed(double value, int digits);
std::string milliseconds(double seconds);           // "94.1 ms"
std::string megabytes(double bytes);                // "188.5 MB", decimal
std::string per_second(double bytes, double time);  // "2.01 GB/s"

}  // namespace holdfast::bench
