// printf formats as strings.
//
// Threads: free functions, pure.
#pragma once

#include <cmath>
#include <cstdio>
#include <string>

namespace holdfast::bench {

template <typename... Values>
std::string formatted(const char* format, Values... values) {
  char text[1024];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

// `missing` if the value is not finite.
inline std::string number(double value, const char* format, const char* missing = "-") {
  return std::isfinite(value) ? formatted(format, value) : missing;
}

}  // namespace holdfast::bench
