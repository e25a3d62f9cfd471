// A lock on a folder, against the other processes of this machine, in whatever container. It ends with this
// object or its process, whichever is first. It never excludes another machine, also where a server keeps the
// files: Linux locks a directory (flock) on this machine alone.
//
// Errors: take() throws IoError if the folder cannot be opened, or its file system knows no locks.
// Threads: one.
#pragma once

#include <filesystem>

namespace holdfast { inline namespace v0_2 {

class FolderLock {
 public:
  FolderLock() = default;
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Requires: !held(). False: another process, or another object, holds it.
  bool take(const std::filesystem::path& folder);
  bool held() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

}}  // namespace holdfast::v0_2
