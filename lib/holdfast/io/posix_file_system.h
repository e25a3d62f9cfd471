// The machine's own file system, behind io/file_system.h. FileSystem::real() is one with all switches on.
//
// It opens names beneath their directory with openat2(RESOLVE_BENEATH | NO_SYMLINKS). If the kernel or a
// container's filter has no openat2, O_NOFOLLOW on single components is equivalent. All opens use O_CLOEXEC.
// Fallbacks: without O_DIRECT, or if it needs larger units than 4096, writes are buffered, written back early
// and dropped from the cache. Without fallocate nothing is reserved; posix_fallocate is never used, because
// some libraries emulate it byte by byte. Without renameat2(NOREPLACE) (NFS) it links and unlinks.
// Sync is sticky: after a failed fsync every later sync of that File or Directory fails without a system
// call.
//
// Errors: IoError. Threads: as io/file_system.h says. Files and Directories may outlive this object.
#pragma once

#include "holdfast/base/export.h"
#include "holdfast/io/file_system.h"

namespace holdfast { inline namespace v0_2 {

// Switches for tests of the fallbacks, and for file systems that accept a call without performing it.
struct PosixOptions {
  bool openat2 = true;           // off: O_NOFOLLOW
  bool rename_noreplace = true;  // off: link+unlink
  bool direct = true;            // off: create_direct is buffered, read_uncached_at drops cached pages
  bool write_behind = true;      // off: buffered checkpoints stay in the page cache until their fsync
};

class HOLDFAST_EXPORT PosixFileSystem final : public FileSystem {
 public:
  explicit PosixFileSystem(PosixOptions options = {}) : options_(options) {}

  std::unique_ptr<Directory> open_directory(const std::filesystem::path& path, bool create) override;
  std::unique_ptr<Directory> make_shared_directory(const std::filesystem::path& path) override;
  std::unique_ptr<File> open_file(const std::filesystem::path& path, OpenMode mode) override;
  bool is_mount_point(const std::filesystem::path& path) const override;
  bool on_root_file_system(const std::filesystem::path& path) const override;

 private:
  // `mode`: of the last component, if it is missing.
  std::unique_ptr<Directory> open_or_make(const std::filesystem::path& path, bool create, unsigned mode);

  PosixOptions options_;
};

}}  // namespace holdfast::v0_2
