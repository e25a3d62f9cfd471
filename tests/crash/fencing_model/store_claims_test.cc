// The claims in a store, searched through; and what each part of the rule is for: without it, the search finds
// the shortest way to break a promise.
//
//   HOLDFAST_NIGHTLY=1    three machines with two tries each, also with standbys: 30 million states, 2 GiB
#include "fencing_model/store_claims.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <ostream>

#include "support/nightly.h"

namespace holdfast::test { namespace {

using store_claims::name_of;
using store_claims::StoreRequest;
using store_claims::StoreResult;
using store_claims::StoreRule;
using store_claims::StoreViolation;

std::string text_of(const StoreResult& result) {
  std::string text = name_of(result.violation);
  for (const std::string& line : result.trace) text += "\n  " + line;
  return text;
}

// One line for all, when the last test is done.
class StoreTally : public testing::Environment {
 public:
  static inline std::uint64_t states = 0;
  static inline std::uint64_t late = 0;
  static inline int violations = 0;
  static inline int variants = 0;
  static inline int failing = 0;

  void TearDown() override {
    std::printf(
        "store claims: %llu states, %llu late requests, %d violations; %d of %d broken variants fail\n",
        static_cast<unsigned long long>(states), static_cast<unsigned long long>(late), violations, failing,
        variants);
  }
};
// NOLINTNEXTLINE(cert-err58-cpp): as googletest wants it
const testing::Environment* const kStoreTally = testing::AddGlobalTestEnvironment(new StoreTally);

StoreResult holds(const StoreRequest& request) {
  const StoreResult result = store_claims::search(request);
  StoreTally::states += result.states;
  StoreTally::late += result.late;
  StoreTally::violations += result.violation == StoreViolation::none ? 0 : 1;
  EXPECT_EQ(result.violation, StoreViolation::none) << text_of(result);
  EXPECT_GT(result.completed, 0U);
  EXPECT_GT(result.late, 0U);
  return result;
}

TEST(StoreClaims, TwoMachinesThatTryAgain) {
  holds({.machines = 2, .tries = 2, .saves = 2});
  if (nightly()) holds({.machines = 2, .tries = 3, .saves = 2});
}

TEST(StoreClaims, OneOfThreeMachinesWins) {
  holds({.machines = 3, .tries = 1, .saves = 2});
  if (nightly()) holds({.machines = 3, .tries = 2, .saves = 2});
}

TEST(StoreClaims, WhereNoClaimIsForgotten) {
  holds({.rule = {.forgets_lower_claims = false}, .machines = 3, .tries = 1, .saves = 2});
}

// In S3, where the number itself is written first.
TEST(StoreClaims, WithConditionalWrites) {
  EXPECT_GT(holds({.rule = {.conditional = 2}, .machines = 2, .tries = 2, .saves = 1}).refused, 0U);
  EXPECT_GT(holds({.rule = {.conditional = 3}, .machines = 3, .tries = 1, .saves = 1}).refused, 0U);
  if (nightly()) holds({.rule = {.conditional = 2}, .machines = 2, .tries = 2, .saves = 2});
}

TEST(StoreClaims, WithConditionsThatTheStoreIgnores) {
  const StoreRule ignored{.conditional = 2, .honours_conditions = false};
  EXPECT_EQ(holds({.rule = ignored, .machines = 2, .tries = 2, .saves = 1}).refused, 0U);
}

// One machine has an rclone that sends no conditions.
TEST(StoreClaims, WithConditionalWritesOfSomeMachines) {
  holds({.rule = {.conditional = 1}, .machines = 2, .tries = 2, .saves = 1});
  holds({.rule = {.conditional = 2}, .machines = 3, .tries = 1, .saves = 1});
}

TEST(StoreClaims, WithStandbys) {
  holds({.machines = 2, .tries = 2, .saves = 2, .standbys = 1});
  holds({.machines = 3, .tries = 2, .saves = 1, .standbys = 2});
  holds({.rule = {.conditional = 3}, .machines = 3, .tries = 1, .saves = 1, .standbys = 2});
  if (!nightly()) return;
  holds({.machines = 3, .tries = 2, .saves = 2, .standbys = 2});
  holds({.rule = {.conditional = 3}, .machines = 3, .tries = 2, .saves = 1, .standbys = 2});
}

// Whoever says so, and whenever: the machine that it waits for may live on.
TEST(StoreClaims, WithAStandbyThatTakesSilenceForAnEnd) {
  holds({.machines = 2, .tries = 2, .saves = 2, .standbys = 1, .silence = true});
  if (nightly()) holds({.machines = 3, .tries = 1, .saves = 2, .standbys = 2, .silence = true});
}

// A part of the rule left out, and what breaks first.
struct StoreVariant {
  const char* name;
  StoreRule rule;
  StoreViolation first;
  int machines = 2;
  int standbys = 0;
  bool silence = false;
};
void PrintTo(const StoreVariant& variant, std::ostream* out) { *out << variant.name; }

class BrokenStoreFence : public testing::TestWithParam<StoreVariant> {};

TEST_P(BrokenStoreFence, IsFound) {
  const StoreVariant& variant = GetParam();
  const StoreResult result = store_claims::search({.rule = variant.rule,
                                                   .machines = variant.machines,
                                                   .tries = 2,
                                                   .saves = 2,
                                                   .standbys = variant.standbys,
                                                   .silence = variant.silence});
  EXPECT_EQ(result.violation, variant.first) << text_of(result);
  ++StoreTally::variants;
  StoreTally::failing += HasFailure() ? 0 : 1;
  std::printf("  %s: %s, after %zu steps of %llu states\n", variant.name, name_of(result.violation),
              result.trace.size(), static_cast<unsigned long long>(result.states));
}

INSTANTIATE_TEST_SUITE_P(
    OfAStandbyWithout, BrokenStoreFence,
    testing::Values(
        StoreVariant{"WaitingForAnEnd", {.waits_for_an_end = false}, StoreViolation::early, 2, 1},
        StoreVariant{"TheFetchAfterTheWait", {.fetches_after_the_wait = false}, StoreViolation::older, 2, 1},
        StoreVariant{
            "TheCopyBeforeTheEnd", {.records_end_after_the_copy = false}, StoreViolation::older, 2, 1},
        // Of a machine that died between its number and its claim.
        StoreVariant{"PassingANumberThatIsTaken",
                     {.conditional = 2, .standby_passes_taken_number = false},
                     StoreViolation::stuck,
                     2,
                     1},
        // The loser of two ends the winner.
        StoreVariant{"LookingAgain", {.looks_again = false}, StoreViolation::early, 3, 2},
        StoreVariant{
            "LosingAgainstAnEqualNumber", {.equal_number_loses = false}, StoreViolation::two_winners, 3, 2},
        StoreVariant{"TheLookAfterTheCopyOfOneThatComesBack",
                     {.looks_after_the_copy = false},
                     StoreViolation::behind,
                     2,
                     1,
                     true}),
    [](const testing::TestParamInfo<StoreVariant>& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Without, BrokenStoreFence,
    testing::Values(
        StoreVariant{"TheListAfterTheClaim", {.lists_after_the_claim = false}, StoreViolation::overtaken},
        StoreVariant{
            "LosingAgainstAnEqualNumber", {.equal_number_loses = false}, StoreViolation::two_winners},
        StoreVariant{"LosingAgainstAHigherNumber", {.higher_number_loses = false}, StoreViolation::overtaken},
        StoreVariant{"FindingTheOwnClaim", {.own_claim_must_be_listed = false}, StoreViolation::two_winners},
        StoreVariant{"ANewNumberForANewTry", {.next_try_takes_next_number = false}, StoreViolation::stuck},
        StoreVariant{"TheNumbersOfFiles", {.counts_files = false}, StoreViolation::two_winners},
        StoreVariant{"KeepingTheHighestClaim", {.keeps_highest_claim = false}, StoreViolation::two_winners},
        StoreVariant{"TheMarkOfTheStart", {.marks_its_start = false}, StoreViolation::lost, 3},
        StoreVariant{"ReadingTheCopyBack", {.reads_back = false}, StoreViolation::lost},
        StoreVariant{"TheLookAfterTheCopy", {.looks_after_the_copy = false}, StoreViolation::behind},
        StoreVariant{"TheOrderByAttempt",
                     {.marks_its_start = false, .newest_by_attempt = false},
                     StoreViolation::lost},
        StoreVariant{"KeepingTheNewest", {.keeps = 0}, StoreViolation::lost},
        StoreVariant{"PassingANumberThatIsTaken",  // of a machine that died before its claim
                     {.conditional = 2, .next_try_passes_taken_number = false},
                     StoreViolation::stuck},
        // A rival that got no answer claims the number without it.
        StoreVariant{"TheListAfterAConditionalWrite",
                     {.conditional = 2, .write_decides = true},
                     StoreViolation::two_winners},
        StoreVariant{"TheListWhereConditionsAreIgnored",
                     {.conditional = 2, .write_decides = true, .honours_conditions = false},
                     StoreViolation::two_winners},
        // Where the rule ends: a store that does not list what was written.
        StoreVariant{"AConsistentList", {.lists_what_was_written = false}, StoreViolation::overtaken}),
    [](const testing::TestParamInfo<StoreVariant>& info) { return std::string(info.param.name); });

}}  // namespace holdfast::test
