// Many simulated runs: which faults a seed has, the search for a seed that breaks a promise, and its shrinking.
//
//   const Search search = search_seeds(1, 1000);
//   EXPECT_EQ(search.broken, "");   // one line that names the promise, and repeats it: HOLDFAST_TEST_SEED=7:12
//
// Errors: none. Threads: one.
#pragma once

#include <cstdint>
#include <string>

namespace holdfast::simulation {

// Bits of Fault. Every fourth seed is calm, because promises about time hold only where no disk or network fails.
std::uint64_t faults_of(std::uint64_t seed);

struct Search {
  std::uint64_t seeds = 0;  // simulated, shrinking apart
  std::string broken;       // empty: all promises held
};
// Simulates `count` seeds from `first` on, each `stride`-th, up to the first that breaks a promise.
Search search_seeds(std::uint64_t first, std::uint64_t count, std::uint64_t stride = 1);

}  // namespace holdfast::simulation
