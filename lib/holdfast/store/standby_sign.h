// standby.json in a run directory: who waits to go on with the run, and what it has at hand
// (docs/standby.md). A standby renews it every two seconds; in a HOME that is a store, where it lies in
// `attempts`, every ten. It is for people, and for the holder of the run, which need not wait for its
// deadline when a standby is ready. It fences nothing, and may be old or torn.
//
// Errors: IoError. Threads: plain values. Durability: none; the file is never synced.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "holdfast/base/clock.h"
#include "holdfast/io/file_system.h"

namespace holdfast { inline namespace v0_2 {

inline constexpr Duration kStandbyRenews = std::chrono::seconds(2);
// After this time without a new sign its standby is gone.
inline constexpr Duration kStandbyYoung = std::chrono::seconds(30);

struct StandbySign {
  std::string host = {};
  std::int64_t pid = 0;
  std::string checkpoint = {};  // name of what is read and verified; empty: nothing yet
  std::int64_t step = -1;       // of that checkpoint; -1: nothing yet
  std::int64_t since_ms = 0;    // when the wait began, since 1970
  std::int64_t unix_ms = 0;     // when this was written; 0: it waits no more
  bool complete = false;        // it has found the run complete: the last word of a standby with a HOME
};

std::string to_json(const StandbySign& sign);
std::optional<StandbySign> standby_sign_from_json(const std::string& text);  // nullopt: torn or foreign
// nullopt: no standby was ever there, or the last one went away.
std::optional<StandbySign> read_standby_sign(Directory& directory);

// Small texts, replaced as a whole. nullopt: there is none.
std::optional<std::string> read_note(Directory& directory, const std::string& name);
void write_note(Directory& directory, const std::string& name, const std::string& text);

}}  // namespace holdfast::v0_2
