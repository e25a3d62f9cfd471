#include "holdfast/mirror/rclone_list.h"

#include "holdfast/base/json.h"

namespace holdfast { inline namespace v0_2 {

std::optional<std::vector<RcloneEntry>> rclone_list_from_json(std::string_view text) {
  const JsonValue list = parse_json(text, 8);
  if (!list.is(JsonValue::Kind::list)) return std::nullopt;
  std::vector<RcloneEntry> entries;
  entries.reserve(list.items.size());
  for (const JsonValue& item : list.items) {
    if (!item.is(JsonValue::Kind::object)) return std::nullopt;
    auto path = text_member(item, "Path");
    const auto bytes = integer_member(item, "Size");
    const JsonValue* const folder = item.find("IsDir");
    // rclone gives -1 for a size that the store does not know.
    if (!path || path->empty() || !bytes || *bytes < -1) return std::nullopt;
    if (folder == nullptr || !folder->is(JsonValue::Kind::boolean)) return std::nullopt;
    entries.push_back({.path = std::move(*path), .bytes = *bytes, .is_folder = folder->integer != 0});
  }
  return entries;
}

}}  // namespace holdfast::v0_2
