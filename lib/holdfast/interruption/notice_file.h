// What a notice file says. The file is the hook for everything that has no source of its own: a scheduler's
// pre-stop script, a provider's agent, a person. It is watched by FileSource (file_source.h).
//
//   (nothing)                                   an interruption is coming; nobody knows when
//   {"action": "terminate", "in_seconds": 90, "text": "node drain"}
//   {"action": "stop", "time": "2025-06-01T12:00:05Z"}
//   {"action": "checkpoint"}
//
//   action      "terminate", "stop": the machine goes away. "hibernate": it sleeps and wakes up again.
//               "checkpoint": commit and go on. "rebalance": it may go away (NoticeKind::at_risk). "none":
//               nothing is coming, as if the file were not there. Anything else, or no action: as
//               "terminate".
//   time        when, in RFC 3339. One that cannot be read, has passed, or is more than a year away is not
//               believed: 110 s from now. So is such an in_seconds.
//   in_seconds  when, counted from the moment at which this content was first seen. With `time` as well, the
//               earlier of the two.
//   text        one phrase for people; shortened to 200 bytes, control characters become blanks.
//
// Members that are not in this list are ignored. Whoever writes such a file wants to tell something: what is
// not a JSON object, or longer than 16 KiB, is a notice without a time.
//
// Threads: pure. Errors: never throws.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "holdfast/interruption/notice.h"

namespace holdfast::inline v1 {

inline constexpr std::size_t kMaxNoticeFile = 16u << 10;
// For an interruption whose time cannot be believed. Two minutes are what providers give.
inline constexpr Duration kUnknownNoticeTime = std::chrono::seconds(110);

struct NoticeFile {
  std::optional<Notice> notice;  // absent: nothing is coming
  bool whole = true;             // false: nothing, or not JSON. Somebody may be in the middle of writing it.
};

// `wall_now` is the same moment as `now`.
NoticeFile parse_notice_file(std::string_view content, SteadyTime now, WallTime wall_now) noexcept;

}  // namespace holdfast::inline v1
