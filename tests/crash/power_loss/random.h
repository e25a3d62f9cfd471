// Draws that depend on a seed alone, the same on every machine (the standard's distributions are not).
//
// Threads: one.
#pragma once

#include <cstdint>

namespace holdfast::test::power_loss {

inline std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(mix(seed + 1)) {}

  std::uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15); }
  // 0 … bound-1.
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }
  bool chance(std::uint64_t of, std::uint64_t in) { return below(in) < of; }

 private:
  std::uint64_t state_;
};

}  // namespace holdfast::test::power_loss
