// What the ledger of one attempt tells about its life (checkpoint/ledger.h), as far as wrappers need it. A
// ledger is best effort: torn and unknown lines are skipped, and what is missing is simply not told.
//
// Errors: IoError where a ledger cannot be read. Threads: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/io/file_system.h"
#include "holdfast/store/verifier.h"

namespace holdfast::inline v1 {

struct LifeStory {
  struct Start {
    WallTime when{};
    std::int64_t step = 0;
    AttemptNumber from_attempt = 0;
    std::string boot;
  };
  struct Commit {
    WallTime when{};
    std::int64_t step = 0;
  };
  struct Warning {
    WallTime when{};  // first sight
    std::string source;
    std::string kind;                   // "deadline", "withdrawn", …
    std::optional<Duration> left = {};  // to its deadline, at first sight
  };

  std::optional<Start> start;
  std::vector<Commit> commits;  // in order
  std::vector<Warning> notices;
  std::optional<std::int64_t> paused_at;  // the training waited at this step for the end
  std::int64_t furthest_step = -1;        // of all that the ledger tells

  // When the machine goes away, by the notices about it. Not those about this process alone: a signal's
  // grace, a limit on its own time. nullopt: none, or withdrawn.
  std::optional<WallTime> machine_ends() const;
};

// The losses of the steps that two attempts both computed, bit for bit, as far as their ledgers tell.
struct Recomputed {
  std::int64_t steps = 0;
  std::int64_t different = 0;
};
Recomputed compare_losses(std::string_view older_ledger, std::string_view newer_ledger);

// `lines` as in the file; a torn last one is skipped.
LifeStory parse_life_story(std::string_view lines);
// Of a long ledger, the last 64 MiB. No ledger: nothing, and an empty story.
std::string read_ledger_text(Directory& run_directory, AttemptNumber attempt);
LifeStory read_life_story(Directory& run_directory, AttemptNumber attempt);

}  // namespace holdfast::inline v1
