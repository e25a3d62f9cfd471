// The names in a run directory: which are Holdfast's, what they mean, how to write them.
//
//   step-000000001200-a0003.h5[.damaged]  a checkpoint: step 1200 of attempt 3 [set aside; also .damaged-2 …]
//   tmp-a0003-…                           a temporary file of attempt 3; never read by recovery
//   ledger-a0003.jsonl, RUN_STATE.json    for people and wrappers
//   {HOME_STATE,standby}.json, attempts/3.holder.json, kernels/   for mirrors, standbys, GPUs; decide nothing
//   attempts/3, attempts/3.state.json     the claim of attempt 3, and its state
//   attempts/3.{progress.json,stall.txt}  what attempt 3 does now, and where it hung; decide nothing
// Numbers are padded, not cut, and compared as numbers; both have at most 18 digits, and attempts begin at 1.
// A name counts only if its numbers, written again, give the same name: no two names mean one file.
//
// Errors: parsers return nullopt for every other name. Threads: pure functions.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "holdfast/base/export.h"
#include "holdfast/store/verifier.h"

namespace holdfast { inline namespace v0_2 {

inline constexpr char kAttemptsDirectory[] = "attempts";
// In that folder, and empty: mirrors on one machine lock it (mirror/local_lock.h).
inline constexpr char kMirrorDirectory[] = "mirror";
inline constexpr char kRunStateName[] = "RUN_STATE.json";
inline constexpr char kHomeStateName[] = "HOME_STATE.json";
inline constexpr char kHomeStateNewName[] = "HOME_STATE.json.new";  // before its rename
inline constexpr char kStandbyName[] = "standby.json";
inline constexpr char kNewNoteEnding[] = ".new";        // of a small text, before its rename
inline constexpr char kKernelsDirectory[] = "kernels";  // compiled GPU kernels (kernels/kernel_cache.h)
inline constexpr std::uint64_t kHighestNumber = 999'999'999'999'999'999;

// A checkpoint's place in history. Greater is newer: first by attempt, then by step.
struct FileId {
  AttemptNumber attempt = 0;
  std::int64_t step = 0;
  auto operator<=>(const FileId&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14
};

// Requires 1 <= attempt <= kHighestNumber and 0 <= step <= kHighestNumber.
HOLDFAST_EXPORT std::string checkpoint_name(FileId id);
HOLDFAST_EXPORT std::string damaged_name(FileId id);
// The first is ".damaged"; .damaged-2 and so on if the first name is taken by a file that must stay.
HOLDFAST_EXPORT std::string damaged_name(FileId id, std::uint64_t nth);
// `what` distinguishes the temporary files of one attempt; it is not empty.
HOLDFAST_EXPORT std::string temporary_name(AttemptNumber attempt, std::string_view what);
HOLDFAST_EXPORT std::string ledger_name(AttemptNumber attempt);
HOLDFAST_EXPORT std::string claim_name(AttemptNumber attempt);
HOLDFAST_EXPORT std::string state_name(AttemptNumber attempt);
HOLDFAST_EXPORT std::string progress_name(AttemptNumber attempt);
HOLDFAST_EXPORT std::string stall_name(AttemptNumber attempt);
HOLDFAST_EXPORT std::string holder_name(AttemptNumber attempt);

HOLDFAST_EXPORT std::optional<FileId> parse_checkpoint_name(std::string_view name);
HOLDFAST_EXPORT std::optional<FileId> parse_damaged_name(std::string_view name);
HOLDFAST_EXPORT std::optional<AttemptNumber> parse_temporary_name(std::string_view name);
HOLDFAST_EXPORT std::optional<AttemptNumber> parse_claim_name(std::string_view name);
HOLDFAST_EXPORT std::optional<AttemptNumber> parse_state_name(std::string_view name);
HOLDFAST_EXPORT std::optional<AttemptNumber> parse_progress_name(std::string_view name);
HOLDFAST_EXPORT std::optional<AttemptNumber> parse_stall_name(std::string_view name);
HOLDFAST_EXPORT std::optional<AttemptNumber> parse_holder_name(std::string_view name);
HOLDFAST_EXPORT std::optional<AttemptNumber> parse_ledger_name(std::string_view name);

// True for every `step-…`, even if malformed: it shows that checkpoints are, or were, kept here.
HOLDFAST_EXPORT bool looks_like_checkpoint(std::string_view name);

}}  // namespace holdfast::v0_2
