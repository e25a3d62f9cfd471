// A text file that only grows, a line at a time: metrics, ledgers. Each line is one write at the end of the
// file, so a process that is killed leaves whole lines and at most one torn last one; the next LineFile on
// that file closes it with a newline before its own first line.
//
// Errors: IoError from the constructor and from append.
// Threads: one thread at a time.
// Durability: none. A line survives the end of the process, not power loss; call file().sync() for that.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/io/file_system.h"

namespace holdfast::inline v1 {

class LineFile {
 public:
  // Made when missing (0600).
  LineFile(FileSystem& file_system, const std::filesystem::path& path);
  // `file` was opened with OpenMode::append.
  explicit LineFile(std::unique_ptr<File> file);

  // `line` without its newline, and without any newline in it.
  void append(std::string_view line);
  File& file() { return *file_; }

 private:
  std::unique_ptr<File> file_;
  std::string buffer_;  // kept, so that a line allocates nothing once the longest was seen
  bool torn_ = false;   // the file ends in the middle of a line
};

// The whole lines of `text`; a torn last one is left out.
std::vector<std::string> whole_lines(std::string_view text);

}  // namespace holdfast::inline v1
