#include "holdfast/interruption/notice_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "holdfast/base/text.h"

namespace holdfast::inline v1 {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kSource = "file";
constexpr Duration kFarthest = std::chrono::hours(24 * 365);
constexpr std::size_t kMostText = 200;
constexpr std::size_t kMostAction = 40;

Notice interruption(std::string text, std::optional<SteadyTime> deadline = {}) {
  return {std::string(kSource), NoticeKind::deadline, deadline, std::move(text)};
}

bool is_blank(std::string_view content) {
  return content.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

// Well-formed UTF-8 stays so.
std::string shortened(std::string text, std::size_t most) {
  if (text.size() > most) {
    while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0) == 0x80) --most;
    text.resize(most);
    text += "…";
  }
  std::replace_if(
      text.begin(), text.end(), [](char c) { return (c >= 0 && c < 0x20) || c == 0x7f; }, ' ');
  return text;
}

std::optional<std::string> text_member(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

// How long until then; nullopt when it is not to be believed.
std::optional<Duration> until_time(const Json& value, WallTime wall_now) {
  if (!value.is_string()) return std::nullopt;
  const auto time = parse_utc(value.get_ref<const std::string&>());
  if (!time || *time <= wall_now || *time - wall_now > kFarthest) return std::nullopt;
  return *time - wall_now;
}

std::optional<Duration> until_seconds(const Json& value) {
  if (!value.is_number()) return std::nullopt;
  const auto seconds = value.get<double>();
  if (!(seconds > 0 && seconds <= std::chrono::duration<double>(kFarthest).count())) return std::nullopt;
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

std::optional<Duration> time_until(const Json& object, WallTime wall_now) {
  std::optional<Duration> left;
  const auto earlier = [&](std::optional<Duration> said) {
    const Duration believed = said.value_or(kUnknownNoticeTime);
    left = left ? std::min(*left, believed) : believed;
  };
  if (const auto time = object.find("time"); time != object.end()) earlier(until_time(*time, wall_now));
  if (const auto seconds = object.find("in_seconds"); seconds != object.end()) {
    earlier(until_seconds(*seconds));
  }
  return left;
}

NoticeFile parse(std::string_view content, SteadyTime now, WallTime wall_now) {
  if (content.size() > kMaxNoticeFile) {
    return {interruption("the notice file is longer than 16 KiB and was not read"), false};
  }
  if (is_blank(content)) return {interruption("there is a notice file"), false};
  // nlohmann takes a NUL for the end of the text.
  const bool torn = content.find('\0') != std::string_view::npos;
  const Json json = torn ? Json(Json::value_t::discarded) : Json::parse(content, nullptr, false);
  if (!json.is_object()) return {interruption("there is a notice file, which is not a JSON object"), false};

  const auto action = text_member(json, "action");
  if (action == "none") return {};
  const auto said = text_member(json, "text");
  std::string text = "the notice file says " + shortened(action.value_or("terminate"), kMostAction);
  if (said) text += ": " + shortened(*said, kMostText);
  if (action == "checkpoint" || action == "rebalance") {
    return {Notice{std::string(kSource), NoticeKind::checkpoint_now, std::nullopt, std::move(text)}};
  }
  const auto left = time_until(json, wall_now);
  if (!left) return {interruption(std::move(text))};
  return {interruption(std::move(text), now + std::chrono::duration_cast<SteadyTime::duration>(*left))};
}

}  // namespace

NoticeFile parse_notice_file(std::string_view content, SteadyTime now, WallTime wall_now) noexcept {
  try {
    return parse(content, now, wall_now);
  } catch (...) {  // no memory
    NoticeFile file;
    file.notice.emplace().kind = NoticeKind::deadline;
    return file;
  }
}

}  // namespace holdfast::inline v1
