#include "holdfast/io/posix_file_system.h"

#include <fcntl.h>
#include <linux/stat.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "holdfast/base/error.h"
#include "holdfast/io/internal/posix_calls.h"
#include "holdfast/io/internal/posix_directory.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using internal::Descriptor;
using internal::fail;
using internal::retry;

Descriptor open_plain_directory(const std::string& path) {
  return Descriptor(retry([&] { return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
}

// Makes the name of `path` in its parent durable. An earlier process may have created it and died before its
// sync. So this is done for existing directories too, up to the root of their file system. If `made` is
// false, another user may own the parent: only EIO counts then.
void sync_name(const std::filesystem::path& parent, bool made) {
  const Descriptor directory = open_plain_directory(parent.native());
  if (!directory) {
    // Without permission to read a parent of others there is nothing that this process could sync.
    if (!made) return;
    fail("open", parent.native());
  }
  if (fsync(directory.get()) != 0 && (made || errno == EIO)) fail("fsync", parent.native());
}

// Creates the missing components of an absolute path, the last one with `last`. Returns the deepest directory
// that existed before.
std::filesystem::path make_missing(const std::filesystem::path& path, mode_t last) {
  std::filesystem::path existing = path;
  struct stat status {};
  while (stat(existing.c_str(), &status) != 0) {
    if (errno != ENOENT || existing == existing.root_path()) fail("stat", existing.native());
    existing = existing.parent_path();
  }
  std::filesystem::path at = existing;
  for (const auto& component : path.lexically_relative(existing)) {
    if (component == ".") continue;
    at /= component;
    // Checkpoints are the user's alone (rule 8); parents on the way may serve others too.
    const mode_t mode = at == path ? last : 0755;
    // EEXIST: another rank of this run creates the same path at this moment.
    if (retry([&] { return mkdir(at.c_str(), mode); }) != 0 && errno != EEXIST) fail("mkdir", at.native());
  }
  return existing;
}

}  // namespace

std::unique_ptr<Directory> PosixFileSystem::open_directory(const std::filesystem::path& path, bool create) {
  return open_or_make(path, create, 0700);
}

std::unique_ptr<Directory> PosixFileSystem::make_shared_directory(const std::filesystem::path& path) {
  return open_or_make(path, true, 0777);
}

std::unique_ptr<Directory> PosixFileSystem::open_or_make(const std::filesystem::path& path, bool create,
                                                         unsigned mode) {
  if (path.empty()) throw UsageError("the name of a directory is empty");
  // ".." after a symbolic link depends on the link's target, so the text alone cannot be normalised.
  const bool upwards = std::find(path.begin(), path.end(), "..") != path.end();
  std::filesystem::path full =
      upwards ? std::filesystem::weakly_canonical(path) : std::filesystem::absolute(path).lexically_normal();
  if (!full.has_filename() && full != full.root_path()) full = full.parent_path();  // "dir/"
  if (create) {
    const std::filesystem::path existing = make_missing(full, mode);
    struct stat status {};
    if (stat(full.c_str(), &status) != 0) fail("stat", full.native());
    const dev_t device = status.st_dev;
    bool made = full != existing;
    for (std::filesystem::path at = full; at != at.root_path(); at = at.parent_path()) {
      const std::filesystem::path parent = at.parent_path();
      // Names above the mount point lie on another file system; no sync of this volume covers them.
      if (stat(parent.c_str(), &status) != 0 || status.st_dev != device) break;
      // From the deepest existing directory upwards nothing is new.
      made = made && at != existing;
      sync_name(parent, made);
    }
  }
  Descriptor opened = open_plain_directory(full.native());
  if (!opened) {
    if (errno == ENOENT && !create) return nullptr;
    fail("open", full.native());
  }
  return internal::make_posix_directory(std::move(opened), full.native(), options_);
}

std::unique_ptr<File> PosixFileSystem::open_file(const std::filesystem::path& path, OpenMode mode) {
  int flags = O_RDONLY | O_NONBLOCK;  // a FIFO must not block the open
  const bool create =
      mode == OpenMode::create || mode == OpenMode::create_shared || mode == OpenMode::create_direct;
  if (create) flags = O_RDWR | O_CREAT | O_EXCL;
  if (mode == OpenMode::overwrite_direct) flags = O_RDWR | O_NONBLOCK;
  if (mode == OpenMode::append) flags = O_RDWR | O_CREAT | O_APPEND;
  // Links are followed, unlike in a run directory: a person names these files, and may name a link on
  // purpose. Other programs read them, so the umask decides about the mode of a new one.
  const auto try_open = [&] { return retry([&] { return open(path.c_str(), flags | O_CLOEXEC, 0666); }); };
  Descriptor opened(try_open());
  // Append mode reads too, to see whether the last line is torn. Writing alone is enough if it has to be.
  if (!opened && mode == OpenMode::append && errno == EACCES) {
    flags = O_WRONLY | O_CREAT | O_APPEND;  // a pipe's writing end, or a file that we may only append to
    opened = Descriptor(try_open());
  }
  if (!opened) {
    fail(mode == OpenMode::read || mode == OpenMode::overwrite_direct ? "open" : "create", path.native());
  }
  struct stat status {};
  if (fstat(opened.get(), &status) != 0) fail("fstat", path.native());
  // open() accepts a directory for reading, and the first read would then fail less clearly.
  if (S_ISDIR(status.st_mode)) fail("open", path.native(), EISDIR);
  const bool direct = mode == OpenMode::create_direct || mode == OpenMode::overwrite_direct;
  return internal::make_posix_file(std::move(opened), path.native(),
                                   {.mode = mode,
                                    .direct = direct && options_.direct,
                                    .uncached_direct = options_.direct,
                                    .write_behind = options_.write_behind});
}

bool PosixFileSystem::is_mount_point(const std::filesystem::path& path) const {
  struct statx found {};
  if (statx(AT_FDCWD, path.c_str(), 0, STATX_TYPE | STATX_MODE, &found) != 0) {
    // A mount whose server is gone counts as not mounted yet, so that the caller waits.
    if (errno == ENOENT || errno == ENOTDIR || errno == ENOTCONN || errno == ESTALE) return false;
    fail("statx", path.native());
  }
  // Detects bind mounts too, which have the same device as their parent.
  if ((found.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0) {
    return (found.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0 && S_ISDIR(found.stx_mode);
  }
  struct stat here {};
  struct stat above {};
  std::error_code error;
  const auto real = std::filesystem::canonical(path, error);
  if (error || stat(real.c_str(), &here) != 0 || stat(real.parent_path().c_str(), &above) != 0) return false;
  // Kernels before 5.8 lack the attribute. The root is its own parent, hence the second comparison.
  return here.st_dev != above.st_dev || here.st_ino == above.st_ino;
}

bool PosixFileSystem::on_root_file_system(const std::filesystem::path& path) const {
  struct stat root {};
  if (stat("/", &root) != 0) fail("stat", "/");
  std::filesystem::path at = std::filesystem::absolute(path).lexically_normal();
  struct stat here {};
  while (stat(at.c_str(), &here) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) fail("stat", at.native());
    if (at == at.root_path()) return true;
    // A missing directory will be created on the file system of its deepest existing parent.
    at = at.parent_path();
  }
  return here.st_dev == root.st_dev;
}

FileSystem& FileSystem::real() {
  static PosixFileSystem file_system;
  return file_system;
}

}}  // namespace holdfast::v0_2
