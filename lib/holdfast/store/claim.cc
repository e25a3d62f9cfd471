#include "holdfast/store/claim.h"

#include <algorithm>
#include <set>
#include <utility>

#include "holdfast/base/env.h"
#include "holdfast/base/json.h"
#include "holdfast/base/system/machine.h"
#include "holdfast/base/text.h"
#include "holdfast/store/attempt.h"
#include "holdfast/store/internal/run_directory.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// `holdfast supervise` reads claims at every exit of its command. The bound keeps that short in a directory
// with thousands of attempts.
constexpr std::size_t kMostAttempts = 64;
constexpr std::size_t kLongestSupervisor = 256;

std::string text_in(const JsonValue& object, const char* name) {
  return text_member(object, name).value_or("");
}

using Numbers = std::set<AttemptNumber>;

Numbers claims_in(const Directory& attempts) {
  Numbers claims;
  for (const DirectoryEntry& entry : attempts.list()) {
    if (const auto number = parse_claim_name(entry.name)) claims.insert(*number);
  }
  return claims;
}

// nullopt: a prune or a copy has claimed that number; it says nothing about a training.
std::optional<AttemptWord> word_of(Directory& attempts, AttemptNumber attempt) {
  AttemptWord word{.attempt = attempt};
  if (const auto text = internal::read_small(attempts, claim_name(attempt), internal::kLongestRecord)) {
    word.claimant = claimant_from_text(*text);
  }
  if (never_trains(word.claimant.by)) return std::nullopt;
  if (const auto text = internal::read_small(attempts, state_name(attempt), internal::kLongestRecord)) {
    auto state = run_state_from_json(*text);
    if (state && state->attempt == attempt) word.state = std::move(state);
  }
  if (word.state && word.state->copy_of != 0) return std::nullopt;  // a prune with a torn claim
  return word;
}

}  // namespace

// For people alone; no decision reads it. An empty or torn claim fences just as well (rule 6).
std::string claim_text(const std::string& by) {
  const ProcessIdentity process = own_process();
  // Joined by hand: the library's JSON document allocates in its destructor, so a lack of memory there would
  // end the process.
  std::string text = "{\"boot_id\":" + json_text(boot_id()) + ",\"host\":" + json_text(host_name()) +
                     ",\"pid\":" + std::to_string(process.pid) +
                     ",\"pid_start\":" + std::to_string(process.started) +
                     ",\"pid_ns\":" + std::to_string(process.pid_namespace) +
                     ",\"time\":" + json_text(format_utc(Clock::real().wall_now()));
  const auto supervisor = env_text(kEnvSupervisor);
  // The variable may hold anything; a claim stays small.
  if (supervisor && supervisor->size() <= kLongestSupervisor)
    text += ",\"supervisor\":" + json_text(*supervisor);
  if (!by.empty()) text += ",\"by\":" + json_text(by);
  return text + "}\n";
}

Claimant claimant_from_text(const std::string& text) {
  const JsonValue claim = parse_json(text);
  const auto count_in = [&](const char* name) {
    return static_cast<std::uint64_t>(integer_member(claim, name).value_or(0));
  };
  return {.boot_id = text_in(claim, "boot_id"),
          .host = text_in(claim, "host"),
          .by = text_in(claim, "by"),
          .time = text_in(claim, "time"),
          .supervisor = text_in(claim, "supervisor"),
          .process = {.pid = integer_member(claim, "pid").value_or(0),
                      .started = count_in("pid_start"),
                      .pid_namespace = count_in("pid_ns")}};
}

bool is_here(const Claimant& claimant) {
  return !claimant.boot_id.empty() && claimant.boot_id == boot_id() && claimant.process.pid_namespace != 0 &&
         claimant.process.pid_namespace == own_process().pid_namespace;
}

Claimant newest_claimant(Directory& run_directory) {
  const auto attempts = run_directory.open_directory(kAttemptsDirectory, false);
  if (!attempts) return {};
  const AttemptNumber highest = highest_attempt(run_directory, attempts.get());
  const auto text = internal::read_small(*attempts, claim_name(highest), internal::kLongestRecord);
  return claimant_from_text(text.value_or(""));
}

std::vector<AttemptWord> attempt_words(Directory& run_directory, AttemptNumber since) {
  std::vector<AttemptWord> words;
  const auto attempts = run_directory.open_directory(kAttemptsDirectory, false);
  if (!attempts) return words;
  const Numbers claims = claims_in(*attempts);
  // Highest first: the newest attempts answer most questions.
  for (auto claim = claims.rbegin(); claim != claims.rend(); ++claim) {
    // The newest attempt is always reported, even if the caller knows it already.
    if (!words.empty() && (*claim <= since || words.size() == kMostAttempts)) break;
    if (auto word = word_of(*attempts, *claim)) words.push_back(std::move(*word));
  }
  return words;
}

AttemptNumber attempts_before(Directory& run_directory, AttemptNumber attempt) {
  const auto attempts = run_directory.open_directory(kAttemptsDirectory, false);
  const Numbers claims = attempts ? claims_in(*attempts) : Numbers();
  if (claims.empty()) return 0;
  Numbers trained;  // only an attempt that trains has a ledger
  for (const DirectoryEntry& entry : run_directory.list()) {
    if (const auto number = parse_ledger_name(entry.name)) trained.insert(*number);
  }
  // Below the lowest claim lie attempts whose small files later starts have removed (old_attempts.h).
  AttemptNumber count = std::min(*claims.begin(), attempt) - 1;
  for (auto claim = claims.begin(); claim != claims.end() && *claim < attempt; ++claim) {
    // The listing answers for most attempts; only those without a ledger cost a read.
    if (trained.contains(*claim) || word_of(*attempts, *claim)) ++count;
  }
  return count;
}

}}  // namespace holdfast::v0_2
