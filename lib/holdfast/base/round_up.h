// Threads: pure.
#pragma once

#include <cstdint>

namespace holdfast::inline v1 {

// The next multiple of `unit` (not 0) from `value` on; the sum must fit.
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace holdfast::inline v1
