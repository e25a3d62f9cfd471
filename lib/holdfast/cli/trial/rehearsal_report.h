// What a rehearsal observed, and whether anything was lost.
//
// Errors: none. Threads: plain values.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/cli/child/attended_child.h"
#include "holdfast/store/verifier.h"

namespace holdfast { inline namespace v0_2 {

// One life that got a notice, and what the next life made of it. Times count from the notice.
struct RehearsedLife {
  struct Commit {
    Duration after{};
    std::int64_t step = 0;
  };

  AttemptNumber attempt = 0;  // 0: training never began
  std::int64_t began_at = 0;  // step
  Duration notice{};          // time from the notice to the machine's end
  bool given = false;         // it lived until the notice
  std::optional<Duration> seen = {};
  std::string seen_by = {};
  bool asked = false;                 // it sent requests to the metadata server
  std::vector<Commit> commits = {};   // acknowledged after the notice, in order
  std::int64_t durable_step = -1;     // newest acknowledged step
  std::int64_t furthest_step = -1;    // newest trained step, as far as its ledger tells
  std::optional<Duration> left = {};  // when it ended by itself, if before the machine's end
  bool waited = false;                // it trained no further before the end, by its ledger
  bool had_to_be_killed = false;      // SIGTERM at the deadline was not enough
  Ending ending = {};
  std::optional<std::int64_t> resumed_at = {};  // first step of the next life
  std::int64_t computed_again = 0;              // steps that the next life repeated, by the ledgers
  std::int64_t different = 0;                   // of these, steps with another loss
};

// What was lost, or cannot be shown to be safe. Empty: nothing was lost.
std::vector<std::string> faults_of(const RehearsedLife& life);

using LossesByStep = std::map<std::int64_t, double>;

// The losses of the steps that two attempts both computed, bit for bit.
struct Recomputed {
  std::int64_t steps = 0;
  std::int64_t different = 0;
};
Recomputed compare_losses(const LossesByStep& older, const LossesByStep& newer);

void print_life(std::ostream& out, int number, const RehearsedLife& life);

}}  // namespace holdfast::v0_2
