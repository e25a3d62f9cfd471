// FileSystem::open_file through the parent directory, for file systems in memory.
//
// Errors: IoError: ENOENT if the file to read or the parent is missing; EEXIST if the file to create exists.
#pragma once

#include <cerrno>
#include <filesystem>
#include <memory>

#include "holdfast/base/error.h"
#include "holdfast/io/file_system.h"

namespace holdfast::test {

inline std::unique_ptr<File> open_beneath_parent(FileSystem& file_system, const std::filesystem::path& path,
                                                 OpenMode mode) {
  const auto parent = file_system.open_directory(path.parent_path(), false);
  if (parent == nullptr) throw IoError("open", path.native(), ENOENT);
  auto file = parent->open(path.filename().native(), mode);
  if (file == nullptr) throw IoError("open", path.native(), mode == OpenMode::read ? ENOENT : EEXIST);
  return file;
}

}  // namespace holdfast::test
