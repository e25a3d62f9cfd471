// What a rehearsal saw, and whether anything was lost.
//
// Threads: plain values.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/cli/attended_child.h"
#include "holdfast/store/verifier.h"

namespace holdfast::inline v1 {

// One life that was given a notice, and what the next one made of it. Times count from the notice.
struct RehearsedLife {
  struct Commit {
    Duration after{};
    std::int64_t step = 0;
  };

  AttemptNumber attempt = 0;  // 0: it never began to train
  std::int64_t began_at = 0;  // step
  Duration notice{};          // until the machine's end
  bool given = false;         // it lived to get the notice
  std::optional<Duration> seen = {};
  std::string seen_by = {};
  bool asked = false;                 // it made requests of the metadata server at all
  std::vector<Commit> commits = {};   // acknowledged after the notice, in order
  std::int64_t durable_step = -1;     // newest acknowledged
  std::int64_t furthest_step = -1;    // newest that it trained, as far as it told
  std::optional<Duration> left = {};  // it ended by itself, before the machine did
  bool waited = false;                // no step more before the end, as its ledger tells
  bool had_to_be_killed = false;      // SIGTERM at the deadline was not enough
  Ending ending = {};
  std::optional<std::int64_t> resumed_at = {};  // where the next life began
  std::int64_t computed_again = 0;              // steps, by the next life, as far as the ledgers tell
  std::int64_t different = 0;                   // of these, with other losses
};

// What was lost, or could not be shown not to be; empty: nothing was lost.
std::vector<std::string> faults_of(const RehearsedLife& life);

void print_life(std::ostream& out, int number, const RehearsedLife& life);

}  // namespace holdfast::inline v1
