// What `rclone lsjson` prints about a folder: a JSON list of objects. Strict, because nothing may be taken
// for an empty folder that is none.
//
// Errors: nullopt unless the text is a complete JSON list of objects, each with a path and a size.
// Threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast { inline namespace v0_2 {

struct RcloneEntry {
  std::string path;         // below the folder
  std::int64_t bytes = -1;  // -1: the store does not know
  bool is_folder = false;
};

std::optional<std::vector<RcloneEntry>> rclone_list_from_json(std::string_view text);

}}  // namespace holdfast::v0_2
