#include "holdfast/io/internal/volume_capabilities.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>

#include "holdfast/io/internal/direct_alignment.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// The unit of this library's own writes with O_DIRECT.
constexpr std::size_t kTrialBlock = 4096;

// By system calls, because Directory would hide a missing call behind its fallback.
Descriptor create(const ProbeFolder& folder, const char* name, int flags) {
  return Descriptor(
      retry([&] { return openat(folder.fd(), name, flags | O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600); }));
}

// Some file systems accept the flag and refuse the write.
bool try_direct(ProbeFolder& folder) {
  const Descriptor file = create(folder, "direct", O_DIRECT);
  if (!file) {
    if (errno != EINVAL && errno != EOPNOTSUPP) fail("create", folder.path_of("direct"));
    return false;
  }
  // O_DIRECT needs aligned memory; a static array costs no allocation and is zero anyway.
  alignas(kTrialBlock) static const std::array<std::byte, kTrialBlock> zeros{};
  if (retry([&] { return pwrite(file.get(), zeros.data(), zeros.size(), 0); }) ==
      static_cast<ssize_t>(kTrialBlock)) {
    return true;
  }
  if (errno != EINVAL && errno != EOPNOTSUPP) fail("write", folder.path_of("direct"));
  return false;
}

// EPERM: a container's filter, or a mount option, forbids the call. That answer is as final as the others.
bool not_understood() { return errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP || errno == EPERM; }

}  // namespace

void look_at_volume(const FileSystem& file_system, const std::filesystem::path& directory,
                    VolumeReport& report) {
  report.path = directory.native();
  report.mount = mount_of(directory);
  struct statfs kind {};
  // statfs() has the kind of the file system, and statvfs() below the counts in one unit.
  if (retry([&] { return statfs(directory.c_str(), &kind); }) != 0) fail("statfs", directory.native());
  report.kind = kind_of_file_system(static_cast<std::uint64_t>(kind.f_type));
  struct statvfs room {};
  if (retry([&] { return statvfs(directory.c_str(), &room); }) != 0) fail("statvfs", directory.native());
  report.bytes_in_all = room.f_blocks * room.f_frsize;
  // f_bavail, not f_bfree: the rest is reserved for root.
  report.bytes_free = room.f_bavail * room.f_frsize;
  // File systems that create inodes on demand, such as btrfs, report no number.
  if (room.f_files != 0) report.inodes_free = room.f_favail;
  report.read_only = (room.f_flag & ST_RDONLY) != 0;
  report.on_root = file_system.on_root_file_system(directory);
}

void try_calls(ProbeFolder& folder, VolumeReport& report) {
  // Without O_DIRECT: this file must exist for the trials of the other calls.
  const Descriptor file = create(folder, "calls", 0);
  if (!file) fail("create", folder.path_of("calls"));
  const DirectAlignment alignment = direct_alignment(file.get());
  report.direct_io = {try_direct(folder), alignment.memory, alignment.offset};

  report.reserves_space = retry([&] { return fallocate(file.get(), 0, 0, kTrialBlock); }) == 0;
  if (!report.reserves_space && !not_understood()) fail("fallocate", folder.path_of("calls"));

  const int at = folder.fd();
  // Before the rename, which takes away the name that both calls start from.
  report.hard_links = linkat(at, "calls", at, "link", 0) == 0;
  // EMLINK: the file system has links, but allows one name for each file.
  if (!report.hard_links && !not_understood() && errno != EMLINK) fail("link", folder.path_of("calls"));
  report.renames_exclusive = renameat2(at, "calls", at, "renamed", RENAME_NOREPLACE) == 0;
  if (!report.renames_exclusive && !not_understood()) fail("rename", folder.path_of("calls"));

  report.syncs_directories = fsync(at) == 0;
  // Other errors, such as EIO, say that the volume is sick and nothing about what it can do.
  if (!report.syncs_directories && errno != EINVAL && errno != EOPNOTSUPP) fail("fsync", folder.path_of("."));
}

}}}  // namespace holdfast::v0_2::internal
