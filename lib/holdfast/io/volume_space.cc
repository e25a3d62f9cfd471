#include "holdfast/io/volume_space.h"

#include <sys/statvfs.h>

#include "holdfast/io/internal/posix_calls.h"

namespace holdfast { inline namespace v0_2 {

VolumeSpace volume_space(const std::filesystem::path& path) {
  struct statvfs room {};
  if (internal::retry([&] { return statvfs(path.c_str(), &room); }) != 0) {
    internal::fail("statvfs", path.native());
  }
  // f_frsize is the unit of the counts; f_bsize is only the preferred transfer size.
  const std::uint64_t block = room.f_frsize;
  // f_bavail leaves out what is reserved for root: a trainer that is not root would meet ENOSPC there.
  return {.free = room.f_bavail * block, .total = room.f_blocks * block};
}

}}  // namespace holdfast::v0_2
