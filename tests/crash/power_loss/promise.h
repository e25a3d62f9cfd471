// What the store has promised by its return values so far. A power cut may take anything else.
//
// Threads: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "holdfast/store/names.h"

namespace holdfast::test::power_loss {

inline const std::filesystem::path kRun = "/volume/run";

struct Written {
  std::uint64_t content = 0;  // hash of the whole file
  bool finite = true;
};

struct Promise {
  std::optional<FileId> acknowledged;  // the newest
  std::optional<FileId> finite;        // the newest acknowledged finite one: it, or a newer one, stays
  AttemptNumber claimed = 0;           // returned by claim(): no later attempt may have this number
  AttemptNumber state_attempt = 0;     // whose state was written last
  std::int64_t state_step = -1;        // and the durable step in it
  // No promises, but what a judge must know.
  std::map<FileId, Written> written;  // all that was ever written whole, acknowledged or not
  std::set<FileId> rotten;            // damaged by something else than a power cut
};

}  // namespace holdfast::test::power_loss
