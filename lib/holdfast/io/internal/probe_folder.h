// The folder that a probe works in: `.holdfast-probe-<pid>` in the directory that is probed, locked while it
// is in use, so that the next probe tells a left-over from one at work. Recovery knows no such name and
// ignores it.
//
// Errors: IoError. Threads: one.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "holdfast/io/file_system.h"
#include "holdfast/io/internal/posix_calls.h"

namespace holdfast::inline v1::internal {

inline constexpr std::string_view kProbePrefix = ".holdfast-probe-";

class ProbeFolder {
 public:
  ProbeFolder(Directory& parent, const std::filesystem::path& parent_path);
  ~ProbeFolder();  // with all that is in it
  ProbeFolder(const ProbeFolder&) = delete;
  ProbeFolder& operator=(const ProbeFolder&) = delete;

  Directory& directory() { return *directory_; }
  int fd() const { return lock_.get(); }
  std::string path_of(std::string_view name) const { return join(path_.native(), name); }

 private:
  const std::filesystem::path path_;
  std::unique_ptr<Directory> directory_;
  Descriptor lock_;
};

// Removes folders of probes that are dead: nobody holds their lock; where folders cannot be locked (NFS), an
// hour without a change says so. What cannot be removed stays.
void remove_dead_probes(Directory& parent, const std::filesystem::path& parent_path);

}  // namespace holdfast::inline v1::internal
