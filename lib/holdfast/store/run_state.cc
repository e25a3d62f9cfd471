#include "holdfast/store/run_state.h"

#include <array>
#include <functional>
#include <set>
#include <string_view>
#include <utility>

#include "holdfast/base/json.h"
#include "holdfast/store/attempt.h"
#include "holdfast/store/internal/run_directory.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::array<std::pair<RunPhase, const char*>, 6> kPhases{{{RunPhase::starting, "starting"},
                                                                   {RunPhase::running, "running"},
                                                                   {RunPhase::complete, "complete"},
                                                                   {RunPhase::interrupted, "interrupted"},
                                                                   {RunPhase::failed, "failed"},
                                                                   {RunPhase::superseded, "superseded"}}};

// A program's exception may have any length, and a record longer than kLongestRecord has no reader.
constexpr std::size_t kLongestReason = 8 << 10;
constexpr std::size_t kLongestOther = 512;  // file, host, boot id, time
constexpr std::string_view kCut = " … ";
// JSON writes a control character as six bytes. Names and numbers have less than 2 KiB.
static_assert(6 * (kLongestReason + 4 * kLongestOther) + (2 << 10) <= internal::kLongestRecord);

bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

// Without its middle, if it is too long: the end may be kHandedOver.
std::string fitting(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  std::size_t head = most / 2;
  std::size_t tail = text.size() - most / 2 + kCut.size();
  while (head > 0 && continues_character(text[head])) --head;
  while (tail < text.size() && continues_character(text[tail])) ++tail;
  return text.substr(0, head).append(kCut).append(text, tail);
}

std::optional<RunPhase> phase_named(const std::string& name) {
  for (const auto& [phase, text] : kPhases) {
    if (name == text) return phase;
  }
  return std::nullopt;
}

std::string* text_named(RunState& state, const std::string& name) {
  if (name == "checkpoint") return &state.checkpoint;
  if (name == "reason") return &state.reason;
  if (name == "host") return &state.host;
  if (name == "boot_id") return &state.boot_id;
  return name == "time" ? &state.time : nullptr;
}

template <class Member>
bool put(Member& member, const JsonValue& value) {
  member = static_cast<Member>(value.integer);
  return value.whole && std::in_range<Member>(value.integer);
}

// False: a known member of another type, or out of range. An unknown member is ignored, because a later
// version may have more.
bool take(RunState& state, const std::string& name, const JsonValue& value) {
  if (name == "phase") {
    // An unknown phase means a newer writer, and its meaning must not be guessed.
    const auto known = phase_named(value.text);
    state.phase = known.value_or(RunPhase::starting);
    return known.has_value();
  }
  if (std::string* const text = text_named(state, name)) {
    *text = value.text;
    return value.is(JsonValue::Kind::text);
  }
  if (name == "attempt") return put(state.attempt, value);
  if (name == "step") return put(state.step, value);
  if (name == "durable_step") return put(state.durable_step, value);
  if (name == "home_step") return put(state.home_step, value);
  if (name == "exit_code") return put(state.exit_code, value);
  if (name == "copy_of") return put(state.copy_of, value);
  if (name == "saves") return put(state.saves, value);
  if (name == "saved_bytes") return put(state.saved_bytes, value);
  if (name == "elapsed_ms") return put(state.elapsed_ms, value);
  if (name == "waited_ms") return put(state.waited_ms, value);
  if (name == "most_risk_ms") return put(state.most_risk_ms, value);
  return true;
}

}  // namespace

const char* word_of(RunPhase phase) {
  for (const auto& [value, text] : kPhases) {
    if (value == phase) return text;
  }
  return "unknown";
}

std::string to_json(const RunState& state, std::size_t longest_reason) {
  // Joined by hand, as claim_text(): no JSON document whose destructor needs memory.
  std::string text = "{\n";
  const auto put = [&](const char* key, const std::string& value) {
    if (text.size() > 2) text += ",\n";
    text += std::string("  \"") + key + "\": " + value;
  };
  put("attempt", std::to_string(state.attempt));
  put("phase", json_text(word_of(state.phase)));
  put("step", std::to_string(state.step));
  put("durable_step", std::to_string(state.durable_step));
  put("checkpoint", json_text(fitting(state.checkpoint, kLongestOther)));
  if (state.home_step >= 0) put("home_step", std::to_string(state.home_step));
  put("reason", json_text(fitting(state.reason, std::min(longest_reason, kLongestReason))));
  put("exit_code", std::to_string(state.exit_code));
  put("host", json_text(fitting(state.host, kLongestOther)));
  put("boot_id", json_text(fitting(state.boot_id, kLongestOther)));
  put("time", json_text(fitting(state.time, kLongestOther)));
  if (state.copy_of != 0) put("copy_of", std::to_string(state.copy_of));
  if (state.saves != 0) {
    put("saves", std::to_string(state.saves));
    put("saved_bytes", std::to_string(state.saved_bytes));
    put("elapsed_ms", std::to_string(state.elapsed_ms));
    put("waited_ms", std::to_string(state.waited_ms));
    put("most_risk_ms", std::to_string(state.most_risk_ms));
  }
  return text + "\n}\n";
}

std::optional<RunState> run_state_from_json(const std::string& text) {
  if (text.size() > internal::kLongestRecord) return std::nullopt;
  const JsonValue json = parse_json(text);
  if (!json.is(JsonValue::Kind::object) || json.find("phase") == nullptr) return std::nullopt;
  RunState state;
  for (std::size_t i = 0; i < json.items.size(); ++i) {
    if (!take(state, json.names[i], json.items[i])) return std::nullopt;
  }
  // Attempts count from 1, so a state without a number is torn or foreign.
  return state.attempt != 0 ? std::optional(std::move(state)) : std::nullopt;
}

std::optional<RunState> read_run_state(Directory& run_directory) {
  const auto attempts = run_directory.open_directory(kAttemptsDirectory, false);
  const AttemptNumber highest = highest_attempt(run_directory, attempts.get());
  const auto believed = [&](Directory& directory, const std::string& name) -> std::optional<RunState> {
    const auto text = internal::read_small(directory, name, internal::kLongestRecord);
    auto state = text ? run_state_from_json(*text) : std::nullopt;
    // Only the highest attempt is believed, so a zombie cannot declare the run complete (rule 10).
    return state && state->attempt == highest ? state : std::nullopt;
  };
  // The attempt's own file first: RUN_STATE.json is a copy, and a crash may have undone it.
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
    const auto text = internal::read_small(*attempts, state_name(attempt), internal::kLongestRecord);
    auto state = text ? run_state_from_json(*text) : std::nullopt;
    if (state && state->attempt == attempt) return {attempt, std::move(state)};
    const auto claim = internal::read_small(*attempts, claim_name(attempt), internal::kLongestRecord);
    // A prune's claim without a state has nothing to say; the attempt before it has.
    if (!claim || !never_trains(text_member(parse_json(*claim), "by").value_or("")))
      return {attempt, std::nullopt};
  }
  return {};
}

std::optional<RunState> told_end(Directory& run_directory, AttemptNumber attempt) {
  // The copy, because it is written last: an attempt that is fenced off before does not end as its own file
  // says.
  const auto text = internal::read_small(run_directory, kRunStateName, internal::kLongestRecord);
  auto state = text ? run_state_from_json(*text) : std::nullopt;
  if (!state || state->attempt != attempt || !is_end(state->phase)) return std::nullopt;
  if (state->copy_of == 0) state->copy_of = attempt;  // a copy of a copy names the attempt that trained
  return state;
}

}}  // namespace holdfast::v0_2
