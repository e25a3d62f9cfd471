// Medians, and the words for numbers. Threads: free functions, pure.
#pragma once

#include <string>
#include <vector>

namespace holdfast::bench {

double median(std::vector<double> values);  // NaN of nothing
// Middle of the distances from the median: how much one repetition says.
double spread(const std::vector<double>& values);

std::string fixed(double value, int digits);
std::string milliseconds(double seconds);           // "94.1 ms"
std::string megabytes(double bytes);                // "188.5 MB", decimal
std::string per_second(double bytes, double time);  // "2.01 GB/s"

}  // namespace holdfast::bench
