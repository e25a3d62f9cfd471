// Reads the lines of a ledger, one by one: for every reader of ledgers, whatever it looks for.
//
//   LedgerLines(*file).each([&](std::string_view text) {
//     const LedgerMembers line(text);
//     if (line.text("event") == "commit") add(line.integer("step"));
//   });
//
// A ledger may hold any bytes: a line that is no JSON object has no members, and one over kLongestLedgerLine
// is passed over. Errors: IoError from a read. Threads: one thread per object.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/base/json.h"
#include "holdfast/io/file_system.h"

namespace holdfast { inline namespace v0_2 {

// A line of losses begins with this; losses_in() reads it. Most of a ledger's bytes are losses, and their
// lines need no parser.
inline constexpr std::string_view kLossesLine = R"({"event":"losses")";

inline constexpr Duration kYear = std::chrono::hours(24 * 366);

// The members of a line. Nested ones are ignored.
class LedgerMembers {
 public:
  explicit LedgerMembers(std::string_view line);

  bool has(std::string_view name) const { return line_.find(name) != nullptr; }
  std::optional<std::int64_t> integer(std::string_view name) const { return integer_member(line_, name); }
  // For members whose name ends with _ms. A longer time than `most` is nonsense, and none.
  std::optional<Duration> time(std::string_view name, Duration most = kYear) const;
  std::string text(std::string_view name) const { return text_member(line_, name).value_or(""); }
  bool flag(std::string_view name) const;

 private:
  JsonValue line_;
};

// Reads the lines of a file piece by piece, so that a large ledger needs little memory. Skips the middle of a
// file longer than `most`.
class LedgerLines {
 public:
  explicit LedgerLines(const File& file, std::uint64_t most = std::numeric_limits<std::uint64_t>::max());

  // Passes every whole line of bounded length to `take`, and calls `cut` where the middle is skipped. Returns
  // the number of longer lines. A torn last line counts as neither.
  std::int64_t each(const std::function<void(std::string_view)>& take, const std::function<void()>& cut = {});

 private:
  const File& file_;
  const std::uint64_t end_;
  std::pair<std::uint64_t, std::uint64_t> middle_;  // is not read
  std::vector<std::byte> piece_;
};

}}  // namespace holdfast::v0_2
