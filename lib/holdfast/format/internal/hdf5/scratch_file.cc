#include "holdfast/format/internal/hdf5/scratch_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// Returns errno or 0. Checks that the space exists, and releases it at once.
int reserve(int descriptor, std::uint64_t room) {
  int error = EINTR;
  // posix_fallocate() returns the error instead of setting errno.
  while (error == EINTR) error = posix_fallocate(descriptor, 0, static_cast<off_t>(room));
  if (error == 0 && ftruncate(descriptor, 0) != 0) error = errno;
  return error;
}

}  // namespace

// Checks for space in advance, because libhdf5 can crash when the disk fills up during its writes.
ScratchFile::ScratchFile(std::uint64_t room) {
  int error = 0;
  // tmpfs first: libhdf5 makes many small writes.
  for (const std::string& folder : {std::string("/dev/shm"), env_text(kEnvTmpDir).value_or("/tmp")}) {
    path_ = folder + "/holdfast-plan-XXXXXX";
    descriptor_ = mkostemp(path_.data(), O_CLOEXEC);
    error = errno;
    if (descriptor_ < 0) continue;
    named_ = true;
    // mkostemp() changed the template, so path_ names the file that exists.
    error = reserve(descriptor_, room);
    if (error == 0) return;
    drop_name();
    close(descriptor_);
  }
  throw IoError("create", path_, error,
                "the file plan needs " + format_bytes(room) + " in /dev/shm or in $TMPDIR, for a moment");
}

ScratchFile::~ScratchFile() {
  drop_name();
  close(descriptor_);
}

void ScratchFile::drop_name() {
  // The name goes early: nobody can open the file, and no crash leaves it.
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

}}}  // namespace holdfast::v0_2::internal
