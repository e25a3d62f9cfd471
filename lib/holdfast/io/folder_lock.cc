#include "holdfast/io/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {

FolderLock::~FolderLock() {
  if (held()) close(descriptor_);
}

bool FolderLock::take(const std::filesystem::path& folder) {
  const int opened = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (opened < 0) throw IoError("open", folder.native(), errno);
  if (flock(opened, LOCK_EX | LOCK_NB) == 0) {
    descriptor_ = opened;
    return true;
  }
  const int code = errno;
  close(opened);
  if (code == EWOULDBLOCK) return false;
  throw IoError("flock", folder.native(), code);
}

}}  // namespace holdfast::v0_2
