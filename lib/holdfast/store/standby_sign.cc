#include "holdfast/store/standby_sign.h"

#include <span>

#include "holdfast/base/json.h"
#include "holdfast/store/internal/run_directory.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 {

std::string to_json(const StandbySign& sign) {
  return "{\"host\":" + json_text(sign.host) + ",\"pid\":" + std::to_string(sign.pid) +
         ",\"checkpoint\":" + json_text(sign.checkpoint) + ",\"step\":" + std::to_string(sign.step) +
         ",\"since_ms\":" + std::to_string(sign.since_ms) + ",\"unix_ms\":" + std::to_string(sign.unix_ms) +
         (sign.complete ? ",\"complete\":1}\n" : "}\n");
}

std::optional<StandbySign> standby_sign_from_json(const std::string& text) {
  const JsonValue json = parse_json(text);
  const auto time = integer_member(json, "unix_ms");
  if (!time || *time < 0) return std::nullopt;
  return StandbySign{.host = text_member(json, "host").value_or(""),
                     .pid = integer_member(json, "pid").value_or(0),
                     .checkpoint = text_member(json, "checkpoint").value_or(""),
                     .step = integer_member(json, "step").value_or(-1),
                     .since_ms = integer_member(json, "since_ms").value_or(*time),
                     .unix_ms = *time,
                     .complete = integer_member(json, "complete").value_or(0) != 0};
}

std::optional<StandbySign> read_standby_sign(Directory& directory) {
  const auto text = read_note(directory, kStandbyName);
  return text ? standby_sign_from_json(*text) : std::nullopt;
}

std::optional<std::string> read_note(Directory& directory, const std::string& name) {
  return internal::read_small(directory, name, internal::kLongestRecord);
}

void write_note(Directory& directory, const std::string& name, const std::string& text) {
  const std::string made = name + kNewNoteEnding;
  auto file = directory.open(made, OpenMode::create);
  if (!file) {  // of a process that was killed, or of another one: the next round writes again
    directory.unlink(made);
    file = directory.open(made, OpenMode::create);
    if (!file) return;
  }
  file->write_at(std::as_bytes(std::span(text)), 0);
  file->close();
  directory.rename_over(made, name);
}

}}  // namespace holdfast::v0_2
