// Whole runs from seeds: no promise is broken, and each planted bug is found.
//
//   HOLDFAST_TEST_SEED=7:12 simulation_test --gtest_filter=Simulation.RepeatsASeed   # with every event and action
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "holdfast/planning/internal/planted.h"
#include "seeds.h"
#include "simulated_run.h"
#include "support/nightly.h"

namespace holdfast::simulation { namespace {

using run::Planted;
using test::nightly;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
constexpr std::uint64_t kOfADay = kSanitized ? 600 : 200'000;
constexpr std::uint64_t kOfANight = 1'000'000;
constexpr std::uint64_t kRealStoresOfADay = kSanitized ? 100 : 2'500;
constexpr std::uint64_t kRealStoresOfANight = 100'000;
constexpr std::uint64_t kMostOfANight = 100'000;  // for one planted bug

// tests/mutations asks for few seeds.
const char* const few = std::getenv("HOLDFAST_TEST_SEEDS");

TEST(Simulation, KeepsAllPromises) {
  counted = {};
  const Search search = search_seeds(1, few != nullptr ? std::stoull(few) : nightly() ? kOfANight : kOfADay);
  EXPECT_EQ(search.broken, "");
  std::cout << search.seeds << " seeds, " << counted.attempts << " attempts, " << counted.commits
            << " commits, " << counted.events << " events and " << counted.quiet_steps << " quiet steps\n";
  for (unsigned promise = 0; promise < counted.promises.size(); ++promise) {
    std::cout << "  " << name_of(static_cast<Promise>(promise)) << " " << counted.promises[promise] << "\n";
    // A promise whose condition no seed meets proves nothing.
    const bool triggered = counted.promises[promise] > 0;
    EXPECT_TRUE(triggered || kSanitized || few != nullptr) << name_of(static_cast<Promise>(promise));
  }
}

// tests/crash/planted_bugs_test runs it on stores with a rule broken each.
TEST(Simulation, OverTheRealStore) {
  const std::uint64_t seeds = nightly() ? kRealStoresOfANight : kRealStoresOfADay;
  const Search search = search_seeds(kRealStores, seeds, kRealStores);
  EXPECT_EQ(search.broken, "");
  std::cout << "seeds over the real store: " << search.seeds << "\n";
}

TEST(Simulation, EqualSeedsRunEqually) {
  counted = {};
  search_seeds(5, 20);
  const Counted first = counted;
  counted = {};
  search_seeds(5, 20);
  EXPECT_EQ(first.events, counted.events);
  EXPECT_EQ(first.promises, counted.promises);
}

TEST(Simulation, RepeatsASeed) {
  const char* const text = std::getenv("HOLDFAST_TEST_SEED");
  const std::string seed = text != nullptr ? text : "1:0";
  const auto colon = seed.find(':');
  ASSERT_NE(colon, std::string::npos) << "HOLDFAST_TEST_SEED is SEED:FAULTS";
  const auto faults = static_cast<Faults>(std::stoull(seed.substr(colon + 1)));
  EXPECT_EQ(SimulatedRun(std::stoull(seed), faults, text != nullptr).run(), "");
}

constexpr int kListed = 40;
struct Bug {
  Planted bug;
  const char* name;
  std::uint64_t seeds;  // the search by day; 0: only by night
};
std::ostream& operator<<(std::ostream& out, const Bug& bug) { return out << bug.name; }

class PlantedBugs : public testing::TestWithParam<Bug> {
 protected:
  ~PlantedBugs() override { run::planted_bug = Planted::none; }
};

TEST_P(PlantedBugs, AreFound) {
  if (kSanitized) GTEST_SKIP() << "the search above is enough for a sanitizer";
  const std::uint64_t seeds = nightly() ? kMostOfANight : GetParam().seeds;
  if (seeds == 0) GTEST_SKIP() << "searched by night";
  run::planted_bug = GetParam().bug;
  const Search search = search_seeds(1, seeds);
  EXPECT_NE(search.broken, "") << "not found in " << search.seeds << " seeds";
  RecordProperty("seeds", std::to_string(search.seeds));
}

#define HOLDFAST_BUG(name, seeds) \
  Bug { Planted::name, #name, seeds }
INSTANTIATE_TEST_SUITE_P(
    All, PlantedBugs,
    testing::Values(
        HOLDFAST_BUG(acknowledges_before_durable, 1000), HOLDFAST_BUG(submits_a_spoiled_copy, 1000),
        HOLDFAST_BUG(leaves_a_copy_open, 1000), HOLDFAST_BUG(stages_memory_in_an_evaluation, 1000),
        HOLDFAST_BUG(asks_no_second_time_after_a_wait, 1090), HOLDFAST_BUG(lets_a_guess_forbid, 1000),
        HOLDFAST_BUG(forgets_a_withdrawal, 1000), HOLDFAST_BUG(never_outlives_an_end, 1000),
        HOLDFAST_BUG(ends_with_zero_after_a_failure, 1000),
        HOLDFAST_BUG(takes_a_broken_evaluation_for_a_boundary, 1000),
        HOLDFAST_BUG(stops_without_a_vote, 1000), HOLDFAST_BUG(recalls_without_settling, 1000),
        HOLDFAST_BUG(writes_two_at_once, 1000), HOLDFAST_BUG(leaks_the_image_of_a_failure, 1000),
        HOLDFAST_BUG(is_quiet_too_long, 1000), HOLDFAST_BUG(saves_a_torn_state_at_the_end, 1000),
        HOLDFAST_BUG(ignores_a_newer_attempt, 1000), HOLDFAST_BUG(counts_a_failed_save, 1000),
        HOLDFAST_BUG(begins_an_agreed_save_in_any_case, 12'000), HOLDFAST_BUG(ignores_ends_of_others, 1000),
        HOLDFAST_BUG(names_the_guess_of_another, 18'000), HOLDFAST_BUG(tries_the_last_save_once, 1000),
        HOLDFAST_BUG(does_not_await_shares, 1000), HOLDFAST_BUG(gives_up_at_a_guess, 1000),
        HOLDFAST_BUG(keeps_the_write_limit, 1000), HOLDFAST_BUG(never_restores_the_write_limit, 1000),
        HOLDFAST_BUG(forgets_the_best_value, 1000), HOLDFAST_BUG(serves_a_request_twice, 1000),
        HOLDFAST_BUG(hides_a_named_end_behind_a_passed_one, 6000),
        HOLDFAST_BUG(takes_a_sleep_for_an_end, 1000), HOLDFAST_BUG(repeats_a_failed_last_save_at_once, 1000),
        HOLDFAST_BUG(counts_a_step_after_the_end, 6000), HOLDFAST_BUG(gives_up_at_the_end_of_another, 1000),
        HOLDFAST_BUG(ends_broken_evaluations_with_74, 1000),
        HOLDFAST_BUG(tries_no_more_in_an_evaluation, 6000), HOLDFAST_BUG(approves_before_durable, 1000),
        HOLDFAST_BUG(forgets_the_way_home, 6000), HOLDFAST_BUG(never_learns_an_interval, 1000),
        HOLDFAST_BUG(leaves_the_machine_approved, 1000), HOLDFAST_BUG(keeps_the_run_from_a_standby, 6000)),
    [](const auto& info) { return std::string(info.param.name); });
#undef HOLDFAST_BUG

// A bug that is planted and not in the list would be searched by nobody.
TEST(PlantedBugsAreListed, AllOfThem) {
  int planted = 0;
#define HOLDFAST_COUNT(name) ++planted;
  HOLDFAST_PLANTED_BUGS(HOLDFAST_COUNT)
#undef HOLDFAST_COUNT
  EXPECT_EQ(planted, kListed);
  EXPECT_GE(planted, 40);
}

}}  // namespace holdfast::simulation
