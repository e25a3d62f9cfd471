// The fencing rule (store/commit.h, rule 6) as a model, searched through: three attempts, every order of
// their single operations, a death at any of them, power cuts that take back what no fsync covered. And what
// each part of the rule is for: without it, the search finds the shortest way to break a promise.
//
//   HOLDFAST_NIGHTLY=1    twice the commits, more branches from older steps: some 55 million states, 1 GiB
#include <gtest/gtest.h>

#include <cstdio>
#include <ostream>
#include <string>

#include "fencing_model/search.h"
#include "support/nightly.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HOLDFAST_SLOW_MODEL
#endif

namespace holdfast::test { namespace {

using fencing::Counts;
using fencing::Looks;
using fencing::Power;
using fencing::Request;
using fencing::Result;
using fencing::Rule;
using fencing::search;
using fencing::Sweep;
using fencing::Violation;

#ifdef HOLDFAST_SLOW_MODEL
constexpr bool kSlow = true;
#else
constexpr bool kSlow = false;
#endif

// One line for all, when the last test is done.
class Tally : public testing::Environment {
 public:
  static inline std::uint64_t states = 0;
  static inline int violations = 0;
  static inline int variants = 0;
  static inline int failing = 0;

  void TearDown() override {
    std::printf("fencing model: %llu states, %d violations; %d of %d broken variants fail\n",
                static_cast<unsigned long long>(states), violations, failing, variants);
  }
};
// NOLINTNEXTLINE(cert-err58-cpp): as googletest wants it
const testing::Environment* const kTally = testing::AddGlobalTestEnvironment(new Tally);

std::string text_of(const Result& result) {
  std::string text = name_of(result.violation);
  for (const std::string& line : result.trace) text += "\n  " + line;
  return text;
}

void holds(const Request& request) {
  const Result result = search(request);
  Tally::states += result.states;
  Tally::violations += result.violation == Violation::none ? 0 : 1;
  EXPECT_EQ(result.violation, Violation::none) << text_of(result);
  EXPECT_TRUE(result.exhausted);
  EXPECT_GT(result.completed, 0U);
}

int attempts() { return kSlow ? 2 : 3; }

TEST(FencingModel, OnOneMachine) {
  const auto request = [](bool forgets, int saves) {
    return Request{.rule = {.forgets_claims = forgets},
                   .attempts = attempts(),
                   .lives = {.saves = saves},
                   .power = Power::one_machine};
  };
  holds(request(true, 1));
  if (nightly()) holds(request(false, 2));
}

TEST(FencingModel, OnMachinesOfTheirOwn) {
  const auto request = [](bool forgets, int saves) {
    return Request{.rule = {.forgets_claims = forgets, .rename_in_one = false},
                   .attempts = attempts(),
                   .lives = {.saves = saves},
                   .power = Power::machines_of_own};
  };
  holds(request(false, nightly() ? 2 : 1));
  if (nightly()) holds(request(true, 1));
}

TEST(FencingModel, OnAnEmptyVolume) {
  for (const Power power : {Power::one_machine, Power::machines_of_own}) {
    holds({.rule = {.forgets_claims = true},
           .with_a_past = false,
           .attempts = nightly() ? 3 : 2,
           .lives = {.saves = 2},
           .power = power});
  }
}

TEST(FencingModel, WithMoreCommits) {
  holds({.rule = {.forgets_claims = true},
         .attempts = 2,
         .lives = {.saves = 2},
         .power = Power::machines_of_own});
}

TEST(FencingModel, HoldsForEveryChoiceOfALife) {
  for (const Power power : {Power::one_machine, Power::machines_of_own}) {
    holds({.rule = {.forgets_claims = true},
           .attempts = 2,
           .lives = {.saves = 2, .choices = true},
           .power = power});
    if (nightly()) holds({.lives = {.saves = 1, .choices = true}, .power = power});
  }
}

// Standbys wait for the end of the attempt that holds the run; each attempt may hand over before each save.
TEST(FencingModel, WithStandbys) {
  const auto request = [](int standbys, int saves, Power power) {
    return Request{.rule = {.forgets_claims = true},
                   .attempts = attempts(),
                   .lives = {.saves = saves, .standbys = standbys},
                   .power = power};
  };
  for (const Power power : {Power::one_machine, Power::machines_of_own}) {
    holds(request(attempts() - 1, 2, power));
    if (nightly()) holds(request(1, 2, power));
  }
  holds(request(1, 1, Power::machines_of_own));
}

// Whoever says so, and whenever: the holder may live on.
TEST(FencingModel, WithAStandbyThatTakesSilenceForAnEnd) {
  const auto request = [](int attempts, int saves) {
    return Request{.rule = {.forgets_claims = true},
                   .attempts = attempts,
                   .lives = {.saves = saves, .standbys = attempts - 1, .silence = true},
                   .power = Power::machines_of_own};
  };
  holds(request(2, 2));
  if (nightly()) holds(request(3, 1));
}

// Where the rule ends: a volume that takes back what other machines have seen already. An unlink of one
// attempt is seen by a third, is lost with its machine, and the first goes on with the file.
TEST(FencingModel, NotOnAVolumeThatTakesBackWhatOthersHaveSeen) {
  const Result result = search({.rule = {.seen_is_durable = false},
                                .attempts = attempts(),
                                .lives = {.saves = 1},
                                .power = Power::machines_of_own});
  EXPECT_EQ(result.violation, kSlow ? Violation::none : Violation::stray) << text_of(result);
}

// A part of the rule left out, and what breaks first.
struct Variant {
  const char* name;
  Rule rule;
  Violation first;
  int loses = 2;  // so many attempts lose an acknowledged step; 0: none do
  bool choices = false;
};
void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

class BrokenFence : public testing::TestWithParam<Variant> {};

TEST_P(BrokenFence, IsFound) {
  const Variant& variant = GetParam();
  ++Tally::variants;
  Request request = {.rule = variant.rule,
                     .attempts = 2,
                     .lives = {.saves = 1, .choices = variant.choices},
                     .power = Power::machines_of_own};
  const Result shortest = search(request);
  ASSERT_EQ(shortest.violation, variant.first) << text_of(shortest);
  std::printf("  %s: %s, after %zu steps", variant.name, name_of(shortest.violation), shortest.trace.size());
  if (variant.loses > 0 && variant.first != Violation::lost && variant.loses <= attempts()) {
    request.attempts = variant.loses;
    request.only = Violation::lost;
    const Result lost = search(request);
    EXPECT_EQ(lost.violation, Violation::lost) << text_of(lost);
    std::printf("; an acknowledged step is lost after %zu, by %d attempts", lost.trace.size(), variant.loses);
  }
  std::printf("\n");
  Tally::failing += HasFailure() ? 0 : 1;
}

INSTANTIATE_TEST_SUITE_P(
    Without, BrokenFence,
    testing::Values(
        // Whatever is renamed before the sweep is in the newer attempt's list, so a commit that does not look
        // again is lost for nobody; but where the newer one branched off, its user was told of a step that no
        // longer counts.
        Variant{"TheLookAfterTheRename", {.look_after_rename = false}, Violation::behind, 0, true},
        Variant{"TheLookBeforeTheRename", {.look_before_rename = false}, Violation::stray, 3},
        Variant{"TheSweep", {.sweep = Sweep::never}, Violation::stray, 3},
        Variant{"TheSweepBeforeTheList", {.sweep = Sweep::after_the_list}, Violation::stray, 3},
        Variant{"TheFsyncOfTheSweep", {.sync_sweep = false}, Violation::stray, 0},
        Variant{"WaitingForNoMark", {.counts = Counts::marked_at_first_commit}, Violation::stray},
        Variant{"WaitingForNoMarkOfTheRecovery", {.counts = Counts::marked_after_recovery}, Violation::stray},
        Variant{"TheLooks", {.looks = Looks::never}, Violation::stray},
        Variant{"LookingInEveryCommit", {.looks = Looks::once}, Violation::stray},
        Variant{"TheExclusiveClaim", {.exclusive_claim = false}, Violation::lost},
        Variant{"TheFsyncOfTheClaim", {.sync_claim = false}, Violation::stuck},
        Variant{"TheFsyncOfTheFile", {.sync_file = false}, Violation::lost},
        Variant{"TheFsyncOfTheDirectory", {.sync_rename = false}, Violation::lost}),
    [](const testing::TestParamInfo<Variant>& info) { return std::string(info.param.name); });

// A part of what a standby does left out, or the part of the fence that a hand-over leans on.
struct StandbyVariant {
  const char* name;
  Rule rule;
  Violation first;
  fencing::Lives lives = {.saves = 1, .standbys = 1};
  Violation only = Violation::none;
};
void PrintTo(const StandbyVariant& variant, std::ostream* out) { *out << variant.name; }

class BrokenFenceOfAStandby : public testing::TestWithParam<StandbyVariant> {};

TEST_P(BrokenFenceOfAStandby, IsFound) {
  const StandbyVariant& variant = GetParam();
  ++Tally::variants;
  const Result result = search({.rule = variant.rule,
                                .attempts = 1 + variant.lives.standbys,
                                .lives = variant.lives,
                                .power = Power::machines_of_own,
                                .only = variant.only});
  EXPECT_EQ(result.violation, variant.first) << text_of(result);
  std::printf("  %s: %s, after %zu steps\n", variant.name, name_of(result.violation), result.trace.size());
  Tally::failing += HasFailure() ? 0 : 1;
}

INSTANTIATE_TEST_SUITE_P(
    Without, BrokenFenceOfAStandby,
    testing::Values(StandbyVariant{"WaitingForAnEnd", {.waits_for_an_end = false}, Violation::early},
                    StandbyVariant{"TheListAfterTheWait", {.lists_after_the_wait = false}, Violation::lost},
                    // Two saw the end, and the slower one ends the quicker one.
                    StandbyVariant{"TheNumberAfterTheEnd",
                                   {.claims_what_it_saw = false},
                                   Violation::early,
                                   {.saves = 1, .standbys = 2}},
                    StandbyVariant{"TheExclusiveClaimOfTwo",
                                   {.exclusive_claim = false},
                                   Violation::lost,
                                   {.saves = 1, .standbys = 2}},
                    StandbyVariant{"TheLooksOfAHolderThatComesBack",
                                   {.looks = Looks::never},
                                   Violation::behind,
                                   {.saves = 1, .standbys = 1, .silence = true},
                                   Violation::behind}),
    [](const testing::TestParamInfo<StandbyVariant>& info) { return std::string(info.param.name); });

}}  // namespace holdfast::test
