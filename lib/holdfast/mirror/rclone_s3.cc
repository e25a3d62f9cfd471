#include "holdfast/mirror/rclone_s3.h"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::pair kFirstVersion{1, 72};  // github.com/rclone/rclone/pull/8947

// The next line of `text`, which is cut off there.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

}  // namespace

bool rclone_sends_conditions(std::string_view version) {
  // "rclone v1.60.1-DEV", and lines about the system.
  constexpr std::string_view kBegin = "rclone v";
  if (!version.starts_with(kBegin)) return false;
  const char* const end = version.data() + version.size();
  std::pair<int, int> found;
  const auto major = std::from_chars(version.data() + kBegin.size(), end, found.first);
  if (major.ec != std::errc() || major.ptr == end || *major.ptr != '.') return false;
  const auto minor = std::from_chars(major.ptr + 1, end, found.second);
  return minor.ec == std::errc() && found >= kFirstVersion;
}

bool is_s3_remote(std::string_view root, std::string_view remotes) {
  // A remote on the fly: ":s3:bucket/run", ":s3,env_auth:bucket/run". Options may follow any name.
  const std::string_view name = root.substr(0, root.find_first_of(",:", 1));
  if (name.starts_with(':')) return name == ":s3";
  while (!remotes.empty()) {
    std::string_view line = take_line(remotes);  // name, colon, spaces, type; newer ones: a description
    if (!line.starts_with(name) || !line.substr(name.size()).starts_with(": ")) continue;
    line.remove_prefix(name.size() + 1);
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    return line.substr(0, line.find(' ')) == "s3";
  }
  return false;
}

}}  // namespace holdfast::v0_2
