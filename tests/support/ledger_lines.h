// Reads the lines of a ledger as they stand on the disk.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "holdfast/io/file_system.h"
#include "holdfast/store/names.h"

namespace holdfast::test {

// Without a torn last one.
inline std::vector<std::string> whole_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    lines.push_back(text.substr(begin, end - begin));
  }
  return lines;
}

// The lines of one attempt's ledger, without a torn last one. Empty if it has none.
inline std::vector<std::string> ledger_lines(FileSystem& files, const std::filesystem::path& run,
                                             AttemptNumber attempt) {
  const auto directory = files.open_directory(run, false);
  const auto file = directory ? directory->open(ledger_name(attempt), OpenMode::read) : nullptr;
  if (!file) return {};
  std::string text(file->size(), '\0');
  text.resize(file->read_at(std::as_writable_bytes(std::span(text)), 0));
  return whole_lines(text);
}

}  // namespace holdfast::test
