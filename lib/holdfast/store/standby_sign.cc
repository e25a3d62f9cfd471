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
         "}\n";
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
                     .unix_ms = *time};
}

std::optional<StandbySign> read_standby_sign(Directory& run_directory) {
  const auto text = internal::read_small(run_directory, kStandbyName, internal::kLongestRecord);
  return text ? standby_sign_from_json(*text) : std::nullopt;
}

void write_standby_sign(Directory& run_directory, const StandbySign& sign) {
  const std::string text = to_json(sign);
  auto file = run_directory.open(kStandbyNewName, OpenMode::create);
  if (!file) {  // of a standby that was killed, or of another one: the next round writes again
    run_directory.unlink(kStandbyNewName);
    file = run_directory.open(kStandbyNewName, OpenMode::create);
    if (!file) return;
  }
  file->write_at(std::as_bytes(std::span(text)), 0);
  file->close();
  run_directory.rename_over(kStandbyNewName, kStandbyName);
}

void remove_standby_sign(Directory& run_directory) { run_directory.unlink(kStandbyName); }

}}  // namespace holdfast::v0_2
