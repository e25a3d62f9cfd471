#include "holdfast/io/internal/posix_calls.h"

#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// A container's filter may answer EPERM for a call that the kernel has. So a trial on "." decides whether an
// EPERM for another name means the file.
bool openat2_works() {
  static const bool works = [] {
    // O_PATH opens even a directory that this process may not read.
    open_how how{};
    how.flags = O_PATH | O_CLOEXEC;
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
    const Descriptor probe(static_cast<int>(syscall(SYS_openat2, AT_FDCWD, ".", &how, sizeof how)));
    // In a deleted working directory the trial fails with another errno, which says nothing about the call.
    return probe || (errno != ENOSYS && errno != EPERM);
  }();
  return works;
}

// True if both names are the same file: a network file system may repeat a link that had succeeded.
bool same_file(int directory, const char* a, const char* b) {
  struct stat first {};
  struct stat second {};
  return fstatat(directory, a, &first, AT_SYMLINK_NOFOLLOW) == 0 &&
         fstatat(directory, b, &second, AT_SYMLINK_NOFOLLOW) == 0 && first.st_ino == second.st_ino &&
         first.st_dev == second.st_dev;
}

}  // namespace

Descriptor::~Descriptor() {
  // Errors are ignored here: files that were written go through File::close(), which checks.
  if (fd_ >= 0) ::close(fd_);
}

void fail(const char* operation, const std::string& path, int code) { throw IoError(operation, path, code); }

void check_component(const std::string& directory, std::string_view name) {
  // 255 is NAME_MAX on Linux. A NUL would cut the name short in the system call.
  if (name.empty() || name == "." || name == ".." || name.size() > 255 ||
      name.find_first_of(std::string_view("/\0", 2)) != std::string_view::npos) {
    throw UsageError("not a file name within " + directory + ": \"" + std::string(name) + "\"");
  }
}

std::string join(const std::string& directory, std::string_view name) {
  std::string path = directory;
  if (path.empty() || path.back() != '/') path += '/';
  return path.append(name);
}

int open_beneath(int directory, const char* name, int flags, mode_t mode, bool use_openat2) {
  if (!use_openat2 || !openat2_works()) {
    // O_NOFOLLOW covers the last component only; check_component() has made sure that there is no other.
    return retry([&] { return openat(directory, name, flags | O_NOFOLLOW | O_CLOEXEC, mode); });
  }
  open_how how{};
  how.flags = static_cast<unsigned>(flags | O_CLOEXEC);
  // openat2() refuses a mode without O_CREAT with EINVAL; open() would ignore it.
  how.mode = (flags & O_CREAT) != 0 ? mode : 0;
  // A link that somebody puts into a run directory must not lead a read or a write to another place (rule 8).
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  // EAGAIN: a rename took place while the kernel resolved the name. The tries are limited, so that a process
  // that renames without a pause cannot hold this thread for ever.
  int fd = -1;
  for (int tries = 0; tries < 100; ++tries) {
    fd = static_cast<int>(retry([&] { return syscall(SYS_openat2, directory, name, &how, sizeof how); }));
    if (fd >= 0 || errno != EAGAIN) break;
  }
  return fd;
}

bool rename_noreplace(int directory, const std::string& path, const char* from, const char* to,
                      bool use_renameat2) {
  const std::string both = join(path, from) + " -> " + to;
  if (use_renameat2) {
    const int result = retry([&] { return renameat2(directory, from, directory, to, RENAME_NOREPLACE); });
    if (result == 0) return true;
    if (errno == EEXIST) return false;
    // EPERM: a container's filter that does not know the call. link+unlink is as safe, so try that.
    if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP && errno != EPERM) fail("rename", both);
  }
  // link() fails if the target exists, so it cannot replace a file either.
  if (retry([&] { return linkat(directory, from, directory, to, 0); }) != 0) {
    if (errno != EEXIST) fail("link", both);
    // One file has both names: an earlier try linked it, and only the unlink is missing.
    if (!same_file(directory, from, to)) return false;
  }
  // ENOENT: a file server repeated an unlink that had succeeded.
  if (retry([&] { return unlinkat(directory, from, 0); }) != 0 && errno != ENOENT) fail("unlink", both);
  return true;
}

FileKind kind_of(mode_t mode) {
  if (S_ISREG(mode)) return FileKind::regular;
  if (S_ISDIR(mode)) return FileKind::directory;
  if (S_ISLNK(mode)) return FileKind::symlink;
  return FileKind::other;
}

}}}  // namespace holdfast::v0_2::internal
