// Parses a notice file: the hook for everything without a source, such as a scheduler's pre-stop script, a
// provider's agent or a person. FileSource (file_source.h) watches it.
//
//   (empty)                                     an interruption is coming at an unknown time
//   {"action": "terminate", "in_seconds": 90, "text": "node drain"}
//   {"action": "stop", "time": "2025-06-01T12:00:05Z"}
//   {"action": "checkpoint"}
//
// docs/interruption_sources.md#the-notice-file describes every member. Unknown members are ignored. Content
// that is not a JSON object, or longer than 16 KiB, is a notice without a time, because its writer wanted to
// announce something.
// Errors: none. Threads: pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "holdfast/interruption/notice.h"

namespace holdfast { inline namespace v0_2 {

inline constexpr std::size_t kMaxNoticeFile = 16u << 10;
// Time until an interruption whose time is not believable. Providers give two minutes.
inline constexpr Duration kUnknownNoticeTime = std::chrono::seconds(110);

struct NoticeFile {
  std::optional<Notice> notice;  // unset: nothing is coming
  bool whole = true;             // false: empty, or not JSON; its writer may not have finished
};

// `wall_now` and `now` are the same moment.
NoticeFile parse_notice_file(std::string_view content, SteadyTime now, WallTime wall_now) noexcept;

}}  // namespace holdfast::v0_2
