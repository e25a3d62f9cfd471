// A folder of its own beneath TMPDIR, removed with all that is in it.
//
// Errors: IoError. Threads: any.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "holdfast/base/error.h"

namespace holdfast::bench {

class TemporaryFolder {
 public:
  TemporaryFolder() : TemporaryFolder(std::filesystem::temp_directory_path()) {}
  explicit TemporaryFolder(const std::filesystem::path& beneath) {
    std::string pattern = (std::filesystem::absolute(beneath) / "holdfast-bench-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw IoError("mkdtemp", pattern, errno);
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code left;
    std::filesystem::remove_all(path_, left);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace holdfast::bench
