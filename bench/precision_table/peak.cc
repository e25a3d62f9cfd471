#include "peak.h"

#include <cmath>
#include <cstdlib>
#include <sstream>

#include "holdfast/base/error.h"

namespace holdfast::bench {
namespace {

constexpr const char* kPeakKeys[] = {"fp32", "tf32", "fp16", "bf16"};

struct Known {
  std::string_view name;          // a part of the driver's name; the longer ones first
  double fp32, tf32, fp16, bf16;  // 0: the device has no such units
};
constexpr Known kKnown[] = {
    {"V100", 15.7, 0, 125, 0},        {"A100", 19.5, 156, 312, 312},
    {"H100 PCIe", 51, 378, 756, 756}, {"H100 80GB HBM3", 67, 495, 989, 989},
    {"H200", 67, 495, 989, 989},
};

double number(const std::string& text, const std::string& all) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != 0 || !std::isfinite(value) || value <= 0) {
    throw UsageError("--peak '" + all + "' is no number of TFLOP/s, nor a list like tf32=156,fp16=312");
  }
  return value;
}

}  // namespace

std::optional<Peaks> known_peaks(std::string_view device) {
  for (const Known& one : kKnown) {
    if (device.find(one.name) == std::string_view::npos) continue;
    Peaks peaks;
    const double values[] = {one.fp32, one.tf32, one.fp16, one.bf16};
    for (int i = 0; i < 4; ++i) {
      if (values[i] > 0) peaks[kPeakKeys[i]] = values[i];
    }
    return peaks;
  }
  return std::nullopt;
}

Peaks parse_peaks(const std::string& text) {
  Peaks peaks;
  if (text.find('=') == std::string::npos) {
    for (const char* precision : kPeakKeys) peaks[precision] = number(text, text);
    return peaks;
  }
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const auto equal = part.find('=');
    bool known = false;
    for (const char* precision : kPeakKeys) known = known || part.substr(0, equal) == precision;
    if (equal == std::string::npos || !known) number("", text);
    peaks[part.substr(0, equal)] = number(part.substr(equal + 1), text);
  }
  return peaks;
}

}  // namespace holdfast::bench
