#include "holdfast/io/internal/posix_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "holdfast/base/error.h"
#include "holdfast/base/forced_exit.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

FileKind kind_of_entry(unsigned char type) {
  switch (type) {
    case DT_REG:
      return FileKind::regular;
    case DT_DIR:
      return FileKind::directory;
    case DT_LNK:
      return FileKind::symlink;
    default:
      return FileKind::other;
  }
}

// Network file systems and FUSE rename a file that is unlinked while open, and leave it behind if the client
// dies. So only file systems that are known to keep the file without a name pass.
bool frees_on_last_close(int fd) {
  struct statfs found {};
  if (fstatfs(fd, &found) != 0) return false;
  constexpr std::uint32_t kKnown[] = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, F2FS_SUPER_MAGIC,
                                      TMPFS_MAGIC};
  return std::find(std::begin(kKnown), std::end(kKnown), static_cast<std::uint32_t>(found.f_type)) !=
         std::end(kKnown);
}

// A regular file without another name, large enough that freeing its blocks takes time.
bool is_large(int fd) {
  // Below 8 MiB an unlink takes no noticeable time, and a thread would cost more.
  constexpr std::int64_t kBytes = 8 << 20;
  struct stat found {};
  return fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && found.st_nlink == 1 &&
         // With another name left, the last close frees nothing. st_blocks counts in units of 512 bytes.
         found.st_blocks >= kBytes / 512;
}

class HeldDescriptor final : public HeldBlocks {
 public:
  explicit HeldDescriptor(Descriptor descriptor) : descriptor_(std::move(descriptor)) {}

 private:
  Descriptor descriptor_;
};

FileStatus status_of(const struct stat& found) {
  return {.kind = kind_of(found.st_mode),
          .size = static_cast<std::uint64_t>(found.st_size),
          .inode = found.st_ino,
          .mode = found.st_mode & 07777u,
          .device = found.st_dev,
          .owner = found.st_uid,
          .group = found.st_gid};
}

class PosixDirectory final : public Directory {
 public:
  PosixDirectory(Descriptor descriptor, std::string path, PosixOptions options)
      : descriptor_(std::move(descriptor)), path_(std::move(path)), options_(options) {
    // Remembered, so that open_again() can tell this directory from another one under the same path.
    if (fstat(fd(), &opened_as_) != 0) fail("fstat", path_);
  }

  const std::string& path() const override { return path_; }

  std::unique_ptr<File> open(std::string_view name, OpenMode mode) override {
    const std::string file = checked(name);
    const std::string full = join(path_, file);
    const bool shared = mode == OpenMode::create_shared;
    const bool create = shared || mode == OpenMode::create || mode == OpenMode::create_direct;
    const bool overwrite = mode == OpenMode::overwrite_direct;
    // O_NONBLOCK: a FIFO under this name must not block the open. Regular files ignore the flag.
    int flags = O_NONBLOCK;
    if (mode == OpenMode::read) flags |= O_RDONLY;
    if (overwrite) flags |= O_RDWR;
    // O_EXCL is what makes claims and temporary files unique (rule 6), also on NFS since version 3.
    if (create) flags |= O_RDWR | O_CREAT | O_EXCL;
    // O_APPEND: the kernel finds the end at each write, so two writers never overwrite each other's lines.
    if (mode == OpenMode::append) flags |= O_RDWR | O_CREAT | O_APPEND;
    Descriptor opened(not_stale(
        [&] { return open_beneath(fd(), file.c_str(), flags, shared ? 0666 : 0600, options_.openat2); }));
    if (!opened) {
      // What the caller may expect is a value; everything else is an error.
      if ((mode == OpenMode::read || overwrite) && errno == ENOENT) return nullptr;
      if (create && errno == EEXIST) return nullptr;
      fail(create ? "create" : "open", full);
    }
    // The opened file is checked, not the name: the name could point to another file between two calls.
    struct stat status {};
    if (fstat(opened.get(), &status) != 0) fail("fstat", full);
    if (S_ISDIR(status.st_mode)) fail("open", full, EISDIR);
    if (!S_ISREG(status.st_mode)) throw IoError("open", full, EINVAL, "it is not a regular file: remove it");
    return make_posix_file(std::move(opened), full,
                           {.mode = mode,
                            .direct = (mode == OpenMode::create_direct || overwrite) && options_.direct,
                            .uncached_direct = options_.direct,
                            .write_behind = options_.write_behind});
  }

  std::unique_ptr<Directory> open_directory(std::string_view name, bool create) override {
    const std::string child = checked(name);
    const std::string full = join(path_, child);
    // Another rank or attempt may create the same directory at this moment, so EEXIST is success.
    if (create && not_stale([&] { return mkdirat(fd(), child.c_str(), 0700); }) != 0 && errno != EEXIST) {
      fail("mkdir", full);
    }
    Descriptor opened(not_stale(
        [&] { return open_beneath(fd(), child.c_str(), O_RDONLY | O_DIRECTORY, 0, options_.openat2); }));
    if (!opened) {
      if (errno == ENOENT && !create) return nullptr;
      fail("open", full);
    }
    return make_posix_directory(std::move(opened), full, options_);
  }

  FileStatus own_status() const override {
    struct stat found {};
    if (not_stale([&] { return fstat(fd(), &found); }) != 0) fail("fstat", path_);
    return status_of(found);
  }

  std::optional<FileStatus> status(std::string_view name) const override {
    const std::string file = checked(name);
    struct stat found {};
    if (not_stale([&] { return fstatat(fd(), file.c_str(), &found, AT_SYMLINK_NOFOLLOW); }) != 0) {
      if (errno == ENOENT) return std::nullopt;
      fail("stat", join(path_, file));
    }
    return status_of(found);
  }

  std::vector<DirectoryEntry> list() const override {
    // Opens its own descriptor, because the read position belongs to the open file and others may list too.
    Descriptor own(not_stale([&] { return openat(fd(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
    if (!own) fail("open", path_);
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(fdopendir(own.get()), closedir);
    if (stream == nullptr) fail("opendir", path_);
    // The stream closes the descriptor from here on.
    own.release();
    std::vector<DirectoryEntry> entries;
    while (true) {
      // readdir() returns null for the end and for an error; only errno tells them apart.
      errno = 0;
      const dirent* entry = readdir(stream.get());  // NOLINT(concurrency-mt-unsafe): a stream of our own
      if (entry == nullptr) {
        if (errno != 0) fail("readdir", path_);
        return entries;
      }
      const std::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      FileKind kind = kind_of_entry(entry->d_type);
      // Some file systems store no type in the directory, for example XFS without ftype.
      if (entry->d_type == DT_UNKNOWN) {
        const auto found = status(name);
        if (!found) continue;  // deleted meanwhile
        kind = found->kind;
      }
      entries.push_back({.name = std::string(name), .kind = kind});
    }
  }

  bool rename_new(std::string_view from, std::string_view to) override {
    const std::string old_name = checked(from);
    const std::string new_name = checked(to);
    const HoldOffForcedExit guard;
    const auto rename = [&] {
      return rename_noreplace(fd(), path_, old_name.c_str(), new_name.c_str(), options_.rename_noreplace);
    };
    // link+unlink is two calls: a second Ctrl-C must not end the process between them. `guard` holds it off.
    try {
      return rename();
    } catch (const IoError& error) {
      // A stale handle means that the server did nothing, so the rename is safe to repeat.
      if (error.code() != ESTALE || !open_again()) throw;
    }
    return rename();
  }

  void rename_over(std::string_view from, std::string_view to) override {
    const std::string old_name = checked(from);
    const std::string new_name = checked(to);
    const HoldOffForcedExit guard;
    if (not_stale([&] { return renameat(fd(), old_name.c_str(), fd(), new_name.c_str()); }) != 0) {
      fail("rename", join(path_, old_name) + " -> " + new_name);
    }
  }

  bool unlink(std::string_view name) override {
    const std::string file = checked(name);
    if (not_stale([&] { return unlinkat(fd(), file.c_str(), 0); }) == 0) return true;
    if (errno == ENOENT) return false;
    fail("unlink", join(path_, file));
  }

  bool unlink_lazily(std::string_view name, std::unique_ptr<HeldBlocks>& blocks) override {
    const std::string file = checked(name);
    blocks.reset();
    if (!frees_on_last_close(fd())) return unlink(name);
    // O_PATH needs no permission on the file, and has no effect on a device or a FIFO.
    // Opened before the unlink: the open descriptor keeps the blocks until another thread closes it.
    Descriptor opened(open_beneath(fd(), file.c_str(), O_PATH | O_NOFOLLOW, 0, options_.openat2));
    const bool worth_it = opened && is_large(opened.get());
    auto held = worth_it ? std::make_unique<HeldDescriptor>(std::move(opened)) : nullptr;
    if (!unlink(name)) return false;
    blocks = std::move(held);
    return true;
  }

  void sync() override {
    // The first error stays for ever: a repeated fsync may report success for data that is lost (rule 3).
    if (sync_error_ == 0 && fsync(fd()) != 0) sync_error_ = errno;
    if (sync_error_ == EINVAL || sync_error_ == ENOTSUP) {
      throw IoError("fsync", path_, sync_error_,
                    "this file system cannot make names durable: put the checkpoints on another volume");
    }
    if (sync_error_ != 0) fail("fsync", path_, sync_error_);
  }

 private:
  int fd() const { return descriptor_.get(); }

  // `call` returns -1 with errno. sync() never uses it, because fsync is never repeated (rule 3).
  template <class Call>
  int not_stale(const Call& call) const {
    int result = retry(call);
    if (result < 0 && errno == ESTALE && open_again()) result = retry(call);
    return result;
  }

  // Puts the new descriptor under the old number, because other threads may use that number now. False, with
  // errno unchanged, if the path is gone or names another directory.
  bool open_again() const {
    const int code = errno;
    const Descriptor again(retry([&] { return ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
    struct stat found {};
    const bool same = again && fstat(again.get(), &found) == 0 && found.st_dev == opened_as_.st_dev &&
                      found.st_ino == opened_as_.st_ino &&
                      retry([&] { return dup3(again.get(), fd(), O_CLOEXEC); }) >= 0;
    errno = code;
    return same;
  }

  // Returns a copy, because system calls need a NUL at the end.
  std::string checked(std::string_view name) const {
    check_component(path_, name);
    return std::string(name);
  }

  Descriptor descriptor_;
  std::string path_;
  PosixOptions options_;
  struct stat opened_as_ {};
  int sync_error_ = 0;
};

}  // namespace

std::unique_ptr<Directory> make_posix_directory(Descriptor descriptor, std::string path,
                                                PosixOptions options) {
  return std::make_unique<PosixDirectory>(std::move(descriptor), std::move(path), options);
}

}}}  // namespace holdfast::v0_2::internal
