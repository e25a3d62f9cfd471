#include "holdfast/interruption/notice_file.h"

#include <algorithm>
#include <string>

#include "holdfast/base/json.h"
#include "holdfast/base/text.h"
#include "holdfast/interruption/internal/announced_end.h"
#include "holdfast/interruption/internal/shown_text.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using internal::kFarthestEnd;
using internal::shortened;

constexpr std::string_view kSource = "file";
constexpr std::size_t kMostText = 200;
constexpr std::size_t kMostAction = 40;

Notice interruption(std::string text, std::optional<SteadyTime> deadline = {}) {
  return {std::string(kSource), NoticeKind::deadline, deadline, std::move(text)};
}

bool is_blank(std::string_view content) {
  return content.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

// Time until then; nullopt if it is not believable.
std::optional<Duration> until_time(const JsonValue& value, WallTime wall_now) {
  if (!value.is(JsonValue::Kind::text)) return std::nullopt;
  const auto time = parse_utc(value.text);
  if (!time || *time <= wall_now || *time - wall_now > kFarthestEnd) return std::nullopt;
  return *time - wall_now;
}

std::optional<Duration> until_seconds(const JsonValue& value) {
  if (!value.is(JsonValue::Kind::number)) return std::nullopt;
  const double seconds = value.number;
  // Written this way round so that NaN is refused.
  if (!(seconds > 0 && seconds <= std::chrono::duration<double>(kFarthestEnd).count())) return std::nullopt;
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

std::optional<Duration> time_until(const JsonValue& object, WallTime wall_now) {
  std::optional<Duration> left;
  const auto earlier = [&](std::optional<Duration> said) {
    // A time that nobody can believe still announces something, so the usual notice counts.
    const Duration believed = said.value_or(kUnknownNoticeTime);
    left = left ? std::min(*left, believed) : believed;
  };
  if (const JsonValue* const time = object.find("time")) earlier(until_time(*time, wall_now));
  if (const JsonValue* const seconds = object.find("in_seconds")) earlier(until_seconds(*seconds));
  return left;
}

NoticeFile parse(std::string_view content, SteadyTime now, WallTime wall_now) {
  if (content.size() > kMaxNoticeFile) {
    // Such a file is more likely a mistake than a notice, but an announcement must not be missed.
    return {interruption("the notice file is longer than 16 KiB and was not read"), false};
  }
  if (is_blank(content)) return {interruption("there is a notice file"), false};
  const JsonValue json = parse_json(content);
  if (!json.is(JsonValue::Kind::object))
    return {interruption("there is a notice file, which is not a JSON object"), false};

  const auto action = text_member(json, "action");
  // The documented way to withdraw a notice without deleting the file.
  if (action == "none") return {};
  const auto said = text_member(json, "text");
  std::string text = "the notice file says " + shortened(action.value_or("terminate"), kMostAction);
  if (said) text += ": " + shortened(*said, kMostText);
  if (action == "checkpoint" || action == "rebalance") {
    const auto kind = action == "checkpoint" ? NoticeKind::checkpoint_now : NoticeKind::at_risk;
    // No deadline: these ask for a save and announce no end.
    return {Notice{std::string(kSource), kind, std::nullopt, std::move(text)}};
  }
  // A missing or unknown action is an end as well, because an announcement must not be missed.
  Notice notice = interruption(std::move(text));
  notice.hibernates = action == "hibernate";
  if (const auto left = time_until(json, wall_now)) {
    notice.deadline = now + std::chrono::duration_cast<SteadyTime::duration>(*left);
  }
  return {std::move(notice)};
}

}  // namespace

NoticeFile parse_notice_file(std::string_view content, SteadyTime now, WallTime wall_now) noexcept {
  try {
    return parse(content, now, wall_now);
  } catch (...) {  // no memory
    // Without memory the notice has no text, but it counts.
    NoticeFile file;
    file.notice.emplace().kind = NoticeKind::deadline;
    return file;
  }
}

}}  // namespace holdfast::v0_2
