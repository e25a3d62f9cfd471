// Rounds a size up to a multiple. Threads: pure.
#pragma once

#include <cstdint>

namespace holdfast { inline namespace v0_2 {

// Smallest multiple of `unit` that is at least `value`. Requires unit > 0 and value + unit - 1 in range.
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}}  // namespace holdfast::v0_2
