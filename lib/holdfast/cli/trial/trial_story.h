// The lives of `holdfast check`: which moments it interrupts, and how a resumed life differs from the
// straight one.
//
// Errors: none. Threads: plain values and functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "holdfast/ledger/trial.h"

namespace holdfast { inline namespace v0_2 {

struct TrialMoment {
  std::string name;  // "in the middle", "at an epoch's end", "right after a save"
  std::int64_t save_at = 0;
  std::int64_t kill_at = 0;
};

struct TrialLife {
  std::vector<TrialStep> steps;
  std::string output = {};  // all of its standard output
  std::vector<TrialValue> values = {};
  std::string failure = {};  // "ended with 70; …"
};

// `most` moments, fewer where the steps are too few: in the middle, right after a save, late, at an epoch's
// end, then right after a part's form changed and before that, then right after a change of a value that had
// stood still for long, then any other.
// Needs at least 4 steps.
std::vector<TrialMoment> moments_of(const TrialLife& straight, std::size_t most);

// Empty: from the step after `resumed_at` on everything is equal, to the last step of the straight life.
// Otherwise the first step that differs, and what of the state differs there.
std::string difference(const TrialLife& straight, const TrialLife& resumed, std::int64_t resumed_at,
                       bool with_output);

}}  // namespace holdfast::v0_2
