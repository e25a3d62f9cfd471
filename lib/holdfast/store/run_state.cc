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

// Called by nlohmann's SAX parser, event by event; `false` ends the parsing. Not its document: that allocates
// in its destructor, and ends the process where there is no memory. Members that are not known are passed
// over.
class Handler {
 public:
  // What was read; nullopt when something is missing.
  std::optional<RunState> take() {
    const auto known = phase_named(phase_);
    if (!known || state_.attempt == 0) return std::nullopt;
    state_.phase = *known;
    return std::move(state_);
  }

  bool null() { return passed_over(); }
  bool boolean(bool) { return passed_over(); }
  bool number_integer(std::int64_t value) { return number(value); }
  bool number_unsigned(std::uint64_t value) { return number(value); }
  bool number_float(double, const std::string&) { return passed_over(); }
  bool binary(json::binary_t&) { return false; }
  bool string(std::string& value) {
    std::string* const member = depth_ == 1 ? text() : nullptr;
    if (member == nullptr) return passed_over();
    *member = std::move(value);
    return true;
  }
  bool key(std::string& name) {
    if (depth_ == 1) key_ = std::move(name);
    return true;
  }
  bool start_object(std::size_t) { return depth_++ == 0 || passed_over(); }
  bool end_object() { return --depth_ >= 0; }
  bool start_array(std::size_t) { return depth_++ > 0 && passed_over(); }
  bool end_array() { return --depth_ >= 0; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) { return false; }

 private:
  std::string* text() {
    if (key_ == "phase") return &phase_;
    if (key_ == "checkpoint") return &state_.checkpoint;
    if (key_ == "reason") return &state_.reason;
    if (key_ == "host") return &state_.host;
    if (key_ == "boot_id") return &state_.boot_id;
    return key_ == "time" ? &state_.time : nullptr;
  }
  template <class Number>
  bool number(Number value) {
    if (depth_ != 1) return passed_over();
    if (key_ == "attempt") return put(state_.attempt, value);
    if (key_ == "step") return put(state_.step, value);
    if (key_ == "durable_step") return put(state_.durable_step, value);
    if (key_ == "exit_code") return put(state_.exit_code, value);
    if (key_ == "copy_of") return put(state_.copy_of, value);
    if (key_ == "saves") return put(state_.saves, value);
    if (key_ == "saved_bytes") return put(state_.saved_bytes, value);
    if (key_ == "elapsed_ms") return put(state_.elapsed_ms, value);
    if (key_ == "waited_ms") return put(state_.waited_ms, value);
    if (key_ == "most_risk_ms") return put(state_.most_risk_ms, value);
    return passed_over();
  }
  template <class Member, class Number>
  static bool put(Member& member, Number value) {
    member = static_cast<Member>(value);
    return std::in_range<Member>(value);
  }
  // A value of a type that its member does not have.
  bool passed_over() {
    if (depth_ == 0) return false;
    for (const char* const number : {"attempt", "step", "durable_step", "exit_code", "copy_of", "saves",
                                     "saved_bytes", "elapsed_ms", "waited_ms", "most_risk_ms"}) {
      if (key_ == number) return false;
    }
    return text() == nullptr;
  }

  RunState state_;
  std::string phase_;
  std::string key_;  // of the member of the outermost object that is being read
  int depth_ = 0;
};

// One string in JSON. A reason may quote a path, and paths are bytes.
std::string quoted(const std::string& text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

std::string to_json(const RunState& state) {
  const char* phase = "";
  for (const auto& [value, text] : kPhases) {
    if (value == state.phase) phase = text;
  }
  std::string text = "{\n";
  const auto put = [&](const char* key, const std::string& value) {
    if (text.size() > 2) text += ",\n";
    text += std::string("  \"") + key + "\": " + value;
  };
  put("attempt", std::to_string(state.attempt));
  put("phase", quoted(phase));
  put("step", std::to_string(state.step));
  put("durable_step", std::to_string(state.durable_step));
  put("checkpoint", quoted(state.checkpoint));
  put("reason", quoted(state.reason));
  put("exit_code", std::to_string(state.exit_code));
  put("host", quoted(state.host));
  put("boot_id", quoted(state.boot_id));
  put("time", quoted(state.time));
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
  if (text.size() > kLongest) return std::nullopt;
  Handler handler;
  if (!json::sax_parse(text, &handler)) return std::nullopt;
  return handler.take();
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
