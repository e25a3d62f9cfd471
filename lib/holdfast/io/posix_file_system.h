// The machine's own file system, behind io/file_system.h. FileSystem::real() is one of these with everything
// switched on.
//
// Names are opened beneath their directory with openat2(RESOLVE_BENEATH | NO_SYMLINKS); where the kernel or a
// container's filter has no openat2, single components with O_NOFOLLOW mean the same. Everything is
// O_CLOEXEC. What a file system lacks is done the next best way: no O_DIRECT, or one that wants more than
// pages of 4096: buffered, with write-back started at once and the written pages dropped; no fallocate:
// nothing; no renameat2(NOREPLACE) (NFS): link and unlink. posix_fallocate is never used (some libraries
// emulate it byte by byte). Sync is sticky: after a failed fsync every later sync of that File or Directory
// fails without a system call.
//
// Threads: as file_system.h says. Lifetime: Files and Directories may outlive it.
#pragma once

#include "holdfast/io/file_system.h"

namespace holdfast::inline v1 {

// Switches for tests of the fallbacks, and for file systems that promise what they do not keep.
struct PosixOptions {
  bool openat2 = true;
  bool rename_noreplace = true;  // off: link+unlink
  bool direct = true;            // off: create_direct is buffered, read_uncached_at drops cached pages
  bool write_behind = true;      // off: buffered checkpoints wait in the page cache for their fsync
};

class PosixFileSystem final : public FileSystem {
 public:
  explicit PosixFileSystem(PosixOptions options = {}) : options_(options) {}

  std::unique_ptr<Directory> open_directory(const std::filesystem::path& path, bool create) override;
  std::unique_ptr<File> open_file(const std::filesystem::path& path, OpenMode mode) override;
  bool is_mount_point(const std::filesystem::path& path) const override;
  bool on_root_file_system(const std::filesystem::path& path) const override;

 private:
  PosixOptions options_;
};

}  // namespace holdfast::inline v1
