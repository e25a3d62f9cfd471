#include "holdfast/store/attempt.h"

#include <algorithm>
#include <cerrno>
#include <span>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/store/claim.h"
#include "holdfast/store/internal/run_directory.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// Names alone count: even a directory or a link takes its number.
AttemptNumber attempt_in_run(std::string_view name) {
  if (const auto id = parse_checkpoint_name(name)) return id->attempt;
  if (const auto id = parse_damaged_name(name)) return id->attempt;
  // Temporary files carry their attempt's number too: after somebody deleted the claims they still show it.
  return parse_temporary_name(name).value_or(0);
}

AttemptNumber attempt_in_attempts(std::string_view name) {
  if (const auto number = parse_claim_name(name)) return *number;
  if (const auto number = parse_state_name(name)) return *number;
  return parse_temporary_name(name).value_or(0);
}

// The claim exists already. A full disk must not stop a run that could make space.
void sign(File& claim, const std::string& text, const std::string& by) {
  try {
    claim.write_at(std::as_bytes(std::span(text)), 0);
    // A run's claim needs no sync: only its existence counts.
    // Without the text, a prune's claim looks like that of a run that has not written a state yet.
    if (!by.empty()) claim.sync();
    claim.close();
  } catch (const IoError& error) {
    log_debug("the claim stays without a signature: {}", error.what());
  }
}

}  // namespace

AttemptNumber highest_attempt(const Directory& run, const Directory* attempts) {
  AttemptNumber highest = 0;
  for (const DirectoryEntry& entry : run.list()) highest = std::max(highest, attempt_in_run(entry.name));
  if (attempts == nullptr) return highest;
  for (const DirectoryEntry& entry : attempts->list()) {
    highest = std::max(highest, attempt_in_attempts(entry.name));
  }
  return highest;
}

AttemptNumber highest_attempt(Directory& run) {
  return highest_attempt(run, run.open_directory(kAttemptsDirectory, false).get());
}

Attempt::Attempt(internal::RunDirectory& directory, AttemptNumber& highest_own, const std::string& by,
                 AttemptNumber only, AttemptNumber least)
    : directory_(directory), highest_own_(highest_own) {
  number_ = claim_next(by, only, least);
}

AttemptNumber Attempt::claim_next(const std::string& by, AttemptNumber only, AttemptNumber least) {
  Directory& attempts = *directory_.attempts();
  std::unique_ptr<File> claim;
  AttemptNumber number = 0;
  // A turn without a claim lost the race for its number; the next turn lists again.
  while (!claim) {
    const AttemptNumber highest = highest_attempt(directory_.run(), &attempts);
    number = std::max(highest + 1, least);
    // The number would not fit into 18 digits, so every later start would fail as well.
    if (number > kHighestNumber) {
      throw RefusedError(directory_.path() + (highest + 1 < least ? ": the other end of its mirror" : "") +
                         " holds a file of attempt " + std::to_string(number - 1) +
                         ", the last number there is; move that file away and start again");
    }
    // The caller looked at the run as it was before this number; a newer claim makes that view worthless.
    if (only != 0 && number != only) {
      throw RefusedError(directory_.path() + ": an attempt has just begun; nothing was claimed or deleted");
    }
    // O_EXCL decides: of two starts that saw the same highest number only one makes this file.
    claim = attempts.open(claim_name(number), OpenMode::create);
  }
  highest_own_ = number;  // it exists and is ours, even if what follows fails
  // Durable before the caller sweeps: after a crash the number must still be taken (rule 6). `attempts` may
  // be new too, so the second sync covers its name.
  std::string text = claim_text(by);
  sign(*claim, text, by);
  if (text_.empty()) text_ = std::move(text);  // the first claim's, whose number the attempt has
  attempts.sync();
  directory_.sync();
  return number;
}

AttemptNumber Attempt::claim_further(const std::string& by, AttemptNumber only, AttemptNumber least) {
  check_not_superseded();
  // Without `only`, a claim that somebody else made since the check is lower: that attempt is superseded.
  return claim_next(by, only, least);
}

bool Attempt::lies_in(Directory& attempts) const {
  const auto found = internal::read_small(attempts, claim_name(number_), internal::kLongestRecord);
  return found && text_.starts_with(*found);  // nobody syncs it, so it may be empty or torn
}

void Attempt::check_not_superseded() {
  // Once superseded, for ever: the newer claim may have been removed since, and its run may have written.
  if (superseded()) throw SupersededError(superseded_by_);
  bool own_claim = false;
  AttemptNumber highest = 0;
  // Lists all names, because a newer attempt need not be number_ + 1.
  for (const DirectoryEntry& entry : directory_.attempts()->list()) {
    // States and temporary files count as well. They show a newer attempt even if somebody has removed its
    // claim.
    const AttemptNumber number = attempt_in_attempts(entry.name);
    highest = std::max(highest, number);
    own_claim = own_claim || parse_claim_name(entry.name) == number_;
  }
  if (highest > highest_own_) supersede("attempt " + std::to_string(highest) + " has taken over");
  // Without the claim a third attempt could get the same number, so two processes would own one name. A list
  // of a network file system may lack a name that is there, so one that is missing is asked for.
  if (!own_claim && !directory_.attempts()->status(claim_name(number_)))
    supersede("its claim is gone, so somebody emptied the directory");
}

void Attempt::supersede(const std::string& what) {
  superseded_by_ =
      "attempt " + std::to_string(number_) + " in " + directory_.path() + " is superseded: " + what;
  throw SupersededError(superseded_by_);
}

}}  // namespace holdfast::v0_2
