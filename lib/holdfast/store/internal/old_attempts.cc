#include "holdfast/store/internal/old_attempts.h"

#include <algorithm>
#include <map>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/store/names.h"
#include "holdfast/store/run_state.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// Bounds what one start waits for on a slow file server.
constexpr std::size_t kMostAtOnce = 300;

bool records_commit(Directory& attempts, const std::string& name) {
  // A file that cannot be read records nothing, so at worst it stays a little longer.
  const auto text = read_small(attempts, name, kLongestRecord);
  const auto state = text ? run_state_from_json(*text) : std::nullopt;
  return state && state->durable_step >= 0;
}

std::vector<std::string> old_ledgers(const Directory& run, AttemptNumber last) {
  std::set<AttemptNumber> with_checkpoints;
  std::map<AttemptNumber, std::string> ledgers;
  for (const DirectoryEntry& entry : run.list()) {
    auto id = parse_checkpoint_name(entry.name);
    if (!id) id = parse_damaged_name(entry.name);
    if (id) with_checkpoints.insert(id->attempt);
    const auto ledger = parse_ledger_name(entry.name);
    if (ledger && *ledger <= last && entry.kind == FileKind::regular) ledgers.emplace(*ledger, entry.name);
  }
  std::vector<std::string> old;
  for (const auto& [attempt, name] : ledgers) {
    // Files of the ledger tell how the checkpoints of that attempt came to be, so they stay as long as
    // those.
    if (!with_checkpoints.contains(attempt)) old.push_back(name);
  }
  return old;
}

std::vector<std::string> old_claims_and_states(Directory& attempts, AttemptNumber last) {
  std::vector<std::string> old;
  std::map<AttemptNumber, std::string> states;
  for (const DirectoryEntry& entry : attempts.list()) {
    if (entry.kind != FileKind::regular) continue;
    const auto claim = parse_claim_name(entry.name);
    if (claim && *claim <= last) old.push_back(entry.name);
    const auto progress = parse_progress_name(entry.name);
    const auto stall = parse_stall_name(entry.name);
    const auto holder = parse_holder_name(entry.name);
    // None decides anything, so they go with their claim.
    if ((progress && *progress <= last) || (stall && *stall <= last) || (holder && *holder <= last)) {
      old.push_back(entry.name);
    }
    if (const auto state = parse_state_name(entry.name)) states.emplace(*state, entry.name);
  }
  // The fsync of our claim also made the newer state durable, so it outlives a crash.
  const auto first_kept = states.upper_bound(last);
  if (first_kept == states.begin()) return old;
  bool recorded = std::any_of(first_kept, states.end(),
                              [&](const auto& state) { return records_commit(attempts, state.second); });
  // One recorded commit must survive: with it a start refuses an empty directory (rule 7).
  for (auto state = std::make_reverse_iterator(first_kept); state != states.rend(); ++state) {
    if (recorded || !records_commit(attempts, state->second)) {
      old.push_back(state->second);
    } else {
      recorded = true;
    }
  }
  return old;
}

void remove(Directory& directory, Attempt& attempt, std::vector<std::string> names) {
  // The rest goes at the next starts.
  if (names.size() > kMostAtOnce) names.resize(kMostAtOnce);
  for (const std::string& name : names) {
    attempt.check_not_superseded();
    directory.unlink(name);
  }
}

}  // namespace

void forget_old_attempts(RunDirectory& directory, Attempt& attempt, AttemptNumber kept) {
  // At least this attempt's own files stay, whatever the option says.
  kept = std::max<AttemptNumber>(kept, 1);
  if (attempt.number() <= kept) return;
  const AttemptNumber last = attempt.number() - kept;
  try {
    remove(directory.run(), attempt, old_ledgers(directory.run(), last));
    remove(*directory.attempts(), attempt, old_claims_and_states(*directory.attempts(), last));
  } catch (const IoError& error) {
    // A SupersededError passes: it ends the process, whatever was left to tidy.
    log_debug("files of old attempts stay for now: {}", error.what());
  } catch (const std::bad_alloc&) {
    log_debug("files of old attempts stay for now");
  }
}

}}}  // namespace holdfast::v0_2::internal
