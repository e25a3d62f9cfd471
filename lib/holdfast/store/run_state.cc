#include "holdfast/store/run_state.h"

#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "holdfast/store/attempt.h"
#include "holdfast/store/internal/run_directory.h"
#include "holdfast/store/names.h"

namespace holdfast::inline v1 {
namespace {

using nlohmann::json;

constexpr std::uint64_t kLongest = 64 << 10;  // bytes; a state has less than 1 KiB

constexpr std::array<std::pair<RunPhase, const char*>, 6> kPhases{{{RunPhase::starting, "starting"},
                                                                   {RunPhase::running, "running"},
                                                                   {RunPhase::complete, "complete"},
                                                                   {RunPhase::interrupted, "interrupted"},
                                                                   {RunPhase::failed, "failed"},
                                                                   {RunPhase::superseded, "superseded"}}};

std::optional<RunPhase> phase_named(const std::string& name) {
  for (const auto& [phase, text] : kPhases) {
    if (name == text) return phase;
  }
  return std::nullopt;
}

// False when the member is there with another type or out of range. A missing one keeps its default.
template <class Integer>
bool take(const json& object, const char* key, Integer& value) {
  const auto member = object.find(key);
  if (member == object.end()) return true;
  if (!member->is_number_integer()) return false;
  if (member->is_number_unsigned()) {
    const auto number = member->template get<std::uint64_t>();
    value = static_cast<Integer>(number);
    return std::in_range<Integer>(number);
  }
  const auto number = member->template get<std::int64_t>();
  value = static_cast<Integer>(number);
  return std::in_range<Integer>(number);
}

bool take(const json& object, const char* key, std::string& value) {
  const auto member = object.find(key);
  if (member == object.end()) return true;
  if (!member->is_string()) return false;
  value = member->get_ref<const std::string&>();
  return true;
}

}  // namespace

std::string to_json(const RunState& state) {
  const char* phase = "";
  for (const auto& [value, text] : kPhases) {
    if (value == state.phase) phase = text;
  }
  nlohmann::ordered_json object = {{"attempt", state.attempt},
                                   {"phase", phase},
                                   {"step", state.step},
                                   {"durable_step", state.durable_step},
                                   {"checkpoint", state.checkpoint},
                                   {"reason", state.reason},
                                   {"exit_code", state.exit_code},
                                   {"host", state.host},
                                   {"boot_id", state.boot_id},
                                   {"time", state.time}};
  if (state.copy_of != 0) object["copy_of"] = state.copy_of;
  // A reason may quote a path, and paths are bytes.
  return object.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::optional<RunState> run_state_from_json(const std::string& text) {
  if (text.size() > kLongest) return std::nullopt;
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object() || !object.contains("attempt") || !object.contains("phase")) return std::nullopt;
  RunState state;
  std::string phase;
  if (!take(object, "attempt", state.attempt) || !take(object, "phase", phase) ||
      !take(object, "step", state.step) || !take(object, "durable_step", state.durable_step) ||
      !take(object, "checkpoint", state.checkpoint) || !take(object, "reason", state.reason) ||
      !take(object, "exit_code", state.exit_code) || !take(object, "host", state.host) ||
      !take(object, "boot_id", state.boot_id) || !take(object, "time", state.time) ||
      !take(object, "copy_of", state.copy_of)) {
    return std::nullopt;
  }
  const auto known = phase_named(phase);
  if (!known || state.attempt == 0) return std::nullopt;
  state.phase = *known;
  return state;
}

std::optional<RunState> read_run_state(Directory& run_directory) {
  const auto attempts = run_directory.open_directory(kAttemptsDirectory, false);
  const AttemptNumber highest = highest_attempt(run_directory, attempts.get());
  const auto believed = [&](Directory& directory, const std::string& name) -> std::optional<RunState> {
    const auto text = internal::read_small(directory, name, kLongest);
    auto state = text ? run_state_from_json(*text) : std::nullopt;
    return state && state->attempt == highest ? state : std::nullopt;
  };
  if (attempts) {
    if (auto state = believed(*attempts, state_name(highest))) return state;
  }
  return believed(run_directory, kRunStateName);
}

LastWord last_word(Directory& run_directory) {
  const auto attempts = run_directory.open_directory(kAttemptsDirectory, false);
  if (!attempts) return {};
  std::set<AttemptNumber, std::greater<>> claims;
  for (const DirectoryEntry& entry : attempts->list()) {
    if (const auto number = parse_claim_name(entry.name)) claims.insert(*number);
  }
  const auto newest = read_run_state(run_directory);
  for (const AttemptNumber attempt : claims) {
    if (newest && newest->attempt == attempt) return {attempt, newest};
    const auto text = internal::read_small(*attempts, state_name(attempt), kLongest);
    auto state = text ? run_state_from_json(*text) : std::nullopt;
    if (state && state->attempt == attempt) return {attempt, std::move(state)};
    const auto claim = internal::read_small(*attempts, claim_name(attempt), kLongest);
    const json who = claim ? json::parse(*claim, nullptr, false) : json();
    if (!who.is_object() || who.value("by", json()) != kClaimedByPrune) return {attempt, std::nullopt};
  }
  return {};
}

}  // namespace holdfast::inline v1
