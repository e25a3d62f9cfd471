#include "holdfast/io/volume_space.h"

#include <sys/statvfs.h>

#include <cerrno>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {

VolumeSpace volume_space(const std::filesystem::path& path) {
  struct statvfs room {};
  int failed = 0;
  do {
    failed = statvfs(path.c_str(), &room) == 0 ? 0 : errno;
  } while (failed == EINTR);
  if (failed != 0) throw IoError("statvfs", path.native(), failed);
  // f_frsize is the unit of the counts; f_bsize is only the preferred transfer size.
  const std::uint64_t block = room.f_frsize;
  // f_bavail leaves out what is reserved for root: a trainer that is not root would meet ENOSPC there.
  return {.free = room.f_bavail * block, .total = room.f_blocks * block};
}

}}  // namespace holdfast::v0_2
