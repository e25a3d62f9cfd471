// The folder that a probe works in: `.holdfast-probe-<pid>` inside the probed directory. The probe locks it,
// so that the next probe can tell an abandoned folder from one in use. Recovery ignores the name.
//
// Errors: IoError. Threads: one.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "holdfast/io/file_system.h"
#include "holdfast/io/internal/posix_calls.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

inline constexpr std::string_view kProbePrefix = ".holdfast-probe-";

class ProbeFolder {
 public:
  ProbeFolder(Directory& parent, const std::filesystem::path& parent_path);
  ~ProbeFolder();  // removes the folder with its files
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

// Removes folders of dead probes: nobody holds the lock. If folders cannot be locked (NFS), an hour without a
// change counts as dead. A folder that cannot be removed stays.
void remove_dead_probes(Directory& parent, const std::filesystem::path& parent_path);

}}}  // namespace holdfast::v0_2::internal
