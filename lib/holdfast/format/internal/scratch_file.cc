#include "holdfast/format/internal/scratch_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"

namespace holdfast::inline v1::internal {

ScratchFile::ScratchFile() {
  for (const std::string& folder : {std::string("/dev/shm"), env_text(kEnvTmpDir).value_or("/tmp")}) {
    path_ = folder + "/holdfast-plan-XXXXXX";
    descriptor_ = mkostemp(path_.data(), O_CLOEXEC);
    if (descriptor_ >= 0) {
      named_ = true;
      return;
    }
  }
  throw IoError("create", path_, errno, "the file plan needs a few MB in /dev/shm or in $TMPDIR");
}

ScratchFile::~ScratchFile() {
  drop_name();
  close(descriptor_);
}

void ScratchFile::drop_name() {
  if (named_) unlink(path_.c_str());
  named_ = false;
}

std::uint64_t ScratchFile::size() const {
  struct stat status {};
  if (fstat(descriptor_, &status) != 0) throw IoError("fstat", path_, errno);
  return static_cast<std::uint64_t>(status.st_size);
}

void ScratchFile::read(std::span<std::byte> to, std::uint64_t offset) const {
  while (!to.empty()) {
    const ssize_t count = pread(descriptor_, to.data(), to.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw IoError("read", path_, count < 0 ? errno : EIO);
    to = to.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

}  // namespace holdfast::inline v1::internal
