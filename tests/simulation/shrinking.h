// From a seed that breaks a promise to the fewest faults that break it, and the line that repeats it.
//
//   const Shrunk least = shrunk(faults, kFaults, broken, [&](auto mask) { return run(seed, mask); });
//
// Errors: none. Threads: one.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace holdfast::simulation {

// `broken` begins with the promise's name and a colon.
struct Shrunk {
  std::uint64_t faults = 0;  // a bit each
  std::string broken;

  // `name_of(number)` is a fault's name.
  template <class Name>
  std::string line(std::uint64_t seed, unsigned count, const Name& name_of) const {
    std::string text = broken + " (HOLDFAST_TEST_SEED=" + std::to_string(seed) + ":" +
                       std::to_string(faults) + " repeats it; faults:";
    for (unsigned fault = 0; fault < count; ++fault) {
      if ((faults >> fault & 1U) != 0) text += std::string(" ") + name_of(fault);
    }
    return text + ")";
  }
};

// Switches faults off, one at a time, as long as the same promise is broken. `run(faults)` returns what is broken.
template <class Run>
Shrunk shrunk(std::uint64_t faults, unsigned count, std::string broken, const Run& run) {
  const std::string promise = broken.substr(0, broken.find(':') + 1);
  for (bool again = true; again;) {
    again = false;
    for (unsigned fault = 0; fault < count; ++fault) {
      const std::uint64_t without = faults & ~(std::uint64_t{1} << fault);
      if (without == faults) continue;
      std::string now = run(without);
      if (!now.starts_with(promise)) continue;
      faults = without;
      broken = std::move(now);
      again = true;
    }
  }
  return {faults, std::move(broken)};
}

}  // namespace holdfast::simulation
