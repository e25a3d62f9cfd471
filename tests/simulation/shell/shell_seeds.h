// Many ShellRuns, each in a child process of its own, the search for a seed that breaks a promise, and its
// shrinking.
//
//   const ShellSearch search = search_shell_seeds(1, 1000);
//   EXPECT_EQ(search.broken, "");   // one line that names the promise, and repeats it: HOLDFAST_TEST_SEED=7:12
//
// Errors: none. Threads: one, and the process has no other.
#pragma once

#include <cstdint>
#include <string>

#include "shell_run.h"

namespace holdfast::simulation {

struct ShellResult {
  std::string broken;  // also that the child process crashed, or did not end
  ShellCounts counts;
};
ShellResult run_shell_seed(std::uint64_t seed, ShellFaults faults, bool trace = false);

struct ShellSearch {
  std::uint64_t seeds = 0;
  std::string broken;
  ShellCounts counts;  // summed
};
ShellSearch search_shell_seeds(std::uint64_t first, std::uint64_t count, bool shrinks = true);

}  // namespace holdfast::simulation
