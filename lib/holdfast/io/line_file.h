// A text file that grows line by line: metrics, ledgers. Each line is one write at the end of the file. A
// killed process leaves whole lines and at most one torn line at the end; the next LineFile ends that line
// with a newline before its own first line.
//
// Errors: IoError from the constructor and from append.
// Threads: one thread at a time.
// Durability: none. A line survives the end of the process, but not power loss; call file().sync() for that.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "holdfast/base/export.h"
#include "holdfast/io/file_system.h"

namespace holdfast { inline namespace v0_2 {

class HOLDFAST_EXPORT LineFile {
 public:
  // Creates the file if it is missing, for other programs (FileSystem::open_file).
  LineFile(FileSystem& file_system, const std::filesystem::path& path);
  // Requires a file that was opened with OpenMode::append.
  explicit LineFile(std::unique_ptr<File> file);

  // `line` contains no newline.
  void append(std::string_view line);
  File& file() { return *file_; }

 private:
  std::unique_ptr<File> file_;
  std::string buffer_;  // kept between calls, so that a line usually allocates nothing
  bool torn_ = false;   // the file ends in the middle of a line
};

}}  // namespace holdfast::v0_2
