// The names in a run directory, and nothing else: which are ours, what they say, how to write them.
//
//   step-000000001200-a0003.h5           a committed checkpoint: step 1200 of attempt 3
//   step-000000001200-a0003.h5.damaged   one that did not verify, moved out of the way
//   tmp-a0003-…                          being written by attempt 3; never read
//   ledger-a0003.jsonl, RUN_STATE.json   for people and wrappers
//   attempts/3, attempts/3.state.json    the claim of attempt 3, and what it says about itself
//
// Numbers are padded, longer ones are not cut, and everything is compared as numbers. A name is ours only
// when writing its numbers again gives the same name; then no two names mean the same file. Attempts begin at
// 1; both numbers have 18 digits at most.
//
// Errors: parsers return nullopt for every name that is not ours. Threads: free functions, pure.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "holdfast/store/verifier.h"

namespace holdfast::inline v1 {

inline constexpr char kAttemptsDirectory[] = "attempts";
inline constexpr char kRunStateName[] = "RUN_STATE.json";
inline constexpr std::uint64_t kHighestNumber = 999'999'999'999'999'999;

// A checkpoint's place in history. Greater is newer: first by attempt, then by step.
struct FileId {
  AttemptNumber attempt = 0;
  std::int64_t step = 0;
  auto operator<=>(const FileId&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14
};

// Requires 1 <= attempt <= kHighestNumber and 0 <= step <= kHighestNumber.
std::string checkpoint_name(FileId id);
std::string damaged_name(FileId id);
// `what` tells the temporary files of one attempt apart; not empty.
std::string temporary_name(AttemptNumber attempt, std::string_view what);
std::string ledger_name(AttemptNumber attempt);
std::string claim_name(AttemptNumber attempt);
std::string state_name(AttemptNumber attempt);

std::optional<FileId> parse_checkpoint_name(std::string_view name);
std::optional<FileId> parse_damaged_name(std::string_view name);
std::optional<AttemptNumber> parse_temporary_name(std::string_view name);
std::optional<AttemptNumber> parse_claim_name(std::string_view name);
std::optional<AttemptNumber> parse_state_name(std::string_view name);
std::optional<AttemptNumber> parse_ledger_name(std::string_view name);

// True for `step-…`, ours or not: somebody keeps, or kept, checkpoints here.
bool looks_like_checkpoint(std::string_view name);

}  // namespace holdfast::inline v1
