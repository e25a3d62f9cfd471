// Whole runs of the product's real shell from seeds: no promise is broken.
//
//   HOLDFAST_TEST_SEED=7:12 simulation_shell_test --gtest_filter=ShellSimulation.RepeatsASeed   # with the run's log
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "shell_seeds.h"
#include "support/nightly.h"

namespace holdfast::simulation { namespace {

constexpr std::uint64_t kOfADay = 2'000;
constexpr std::uint64_t kOfANight = 200'000;

std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::stoull(text) : otherwise;
}

TEST(ShellSimulation, KeepsAllPromises) {
  const ShellSearch search =
      search_shell_seeds(number_of("HOLDFAST_TEST_FIRST", 1),
                         number_of("HOLDFAST_TEST_SEEDS", test::nightly() ? kOfANight : kOfADay),
                         std::getenv("HOLDFAST_TEST_NO_SHRINK") == nullptr);
  EXPECT_EQ(search.broken, "");
  const ShellCounts& counts = search.counts;
  std::cout << search.seeds << " seeds, " << counts.attempts << " attempts, " << counts.steps << " steps, "
            << counts.durable << " durable, " << counts.points << " points, " << counts.seconds
            << " virtual seconds\n";
  for (unsigned promise = 0; promise < kShellPromises; ++promise) {
    std::cout << "  " << name_of(static_cast<ShellPromise>(promise)) << " " << counts.promises[promise]
              << "\n";
    EXPECT_GT(counts.promises[promise], 0U) << name_of(static_cast<ShellPromise>(promise));
  }
  for (unsigned code = 0; code < 256; ++code) {
    if (counts.codes[code] > 0) std::cout << "  exit code " << code << " " << counts.codes[code] << "\n";
  }
}

TEST(ShellSimulation, EqualSeedsRunEqually) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const ShellResult first = run_shell_seed(seed, shell_faults_of(seed));
    const ShellResult second = run_shell_seed(seed, shell_faults_of(seed));
    EXPECT_EQ(first.counts.hash, second.counts.hash) << seed;
    EXPECT_EQ(first.counts.points, second.counts.points) << seed;
  }
}

// What was found, and mended.
TEST(ShellSimulation, KeepsWhatItHasFound) {
  // A save became durable after the end had given it up: the run, which was told to stop, ended with 74.
  EXPECT_EQ(run_shell_seed(41768, 274'890'105'050).broken, "");
}

TEST(ShellSimulation, RepeatsASeed) {
  const char* const text = std::getenv("HOLDFAST_TEST_SEED");
  const std::string seed = text != nullptr ? text : "1:0";
  const auto colon = seed.find(':');
  const std::uint64_t number = std::stoull(seed);
  const ShellFaults faults =
      colon == std::string::npos ? shell_faults_of(number) : std::stoull(seed.substr(colon + 1));
  const ShellResult result = run_shell_seed(number, faults, text != nullptr);
  EXPECT_EQ(result.broken, "");
  std::cout << "trace " << result.counts.hash << " of " << result.counts.points << " points\n";
}

}}  // namespace holdfast::simulation
