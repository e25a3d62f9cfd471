#include "holdfast/store/run_state.h"

#include <array>
#include <nlohmann/json.hpp>
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
  const nlohmann::ordered_json object = {{"attempt", state.attempt},
                                         {"phase", phase},
                                         {"step", state.step},
                                         {"durable_step", state.durable_step},
                                         {"checkpoint", state.checkpoint},
                                         {"reason", state.reason},
                                         {"exit_code", state.exit_code},
                                         {"host", state.host},
                                         {"boot_id", state.boot_id},
                                         {"time", state.time}};
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
      !take(object, "boot_id", state.boot_id) || !take(object, "time", state.time)) {
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

}  // namespace holdfast::inline v1
