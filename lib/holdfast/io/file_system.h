// The only way to the disk. All reads and writes in a run directory use this interface, so tests can replace
// it by an in-memory, failing or recording file system.
//
// A Directory is an open descriptor. Names are single path components, opened beneath it and never through a
// symbolic link. After ESTALE (a network file system forgot the directory) each operation opens it again by
// its path, once, if device and inode are the same. No method retries fsync: after one failure the page cache
// may report success while the disk holds zeros. Everything else retries EINTR.
// Errors: IoError with operation, path and errno, unless a return value says it. No short reads or writes.
// Threads: File::read_at, write_at and sync may run at once on several threads; other calls on one object by
// one thread at a time. FileSystem and const Directory methods: any thread.
// Durability: bytes are durable after File::sync, names after Directory::sync. Nothing else is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

enum class FileKind { regular, directory, symlink, other };

struct FileStatus {
  FileKind kind = FileKind::other;
  std::uint64_t size = 0;
  std::uint64_t inode = 0;
  std::uint32_t mode = 0;  // permission bits
  std::uint64_t device = 0;
  std::uint32_t owner = 0;
  std::uint32_t group = 0;
};

struct DirectoryEntry {
  std::string name;
  FileKind kind = FileKind::other;
};

class HOLDFAST_EXPORT File {
 public:
  virtual ~File() = default;  // closes, and ignores errors; writers call close()

  virtual std::uint64_t size() const = 0;
  // Reads up to buffer.size() bytes; fewer only at the end of the file.
  virtual std::size_t read_at(std::span<std::byte> buffer, std::uint64_t offset) const = 0;
  // Same result as read_at, but read from the device, not from the page cache, as far as the system allows:
  // with O_DIRECT, or after dropping the cached pages.
  virtual std::size_t read_uncached_at(std::span<std::byte> buffer, std::uint64_t offset) const = 0;
  // Writes all of `data`. In the `…_direct` modes pointer, size and offset must be multiples of 4096.
  virtual void write_at(std::span<const std::byte> data, std::uint64_t offset) = 0;
  // Allocates space for `length` bytes now, so that ENOSPC appears here. Does nothing if the file system
  // cannot do this (EOPNOTSUPP).
  virtual void reserve(std::uint64_t length) = 0;
  virtual void truncate(std::uint64_t length) = 0;
  virtual void sync() = 0;
  // Lets other users read it (mode 0644), which a file of the run directory never is. Does nothing in a file
  // system of a test.
  virtual void let_others_read() {}
  // Mode, owner and group of the file that this one will replace. A group that this process may not give gets
  // no access. Does nothing in a file system of a test.
  virtual void take_access_of(const FileStatus& /*replaced*/) {}
  // Reports errors that only close can see (NFS, EDQUOT). The descriptor is closed in any case.
  virtual void close() = 0;
};

enum class OpenMode {
  read,              // must exist
  create,            // read and write; must not exist (O_EXCL), mode 0600
  create_shared,     // as create, with mode 0666 without the umask: a file for other programs
  create_direct,     // as create, with O_DIRECT if the file system allows it; otherwise buffered, and the
                     // pages are written back and dropped soon
  overwrite_direct,  // as create_direct, but must exist; keeps its length and bytes
  append,            // created if missing, mode 0600; ignores write_at's offset and writes to the end
};

// The blocks of a deleted file. The destructor frees them, which takes seconds for a large file on a volume
// mounted with `discard`.
class HOLDFAST_EXPORT HeldBlocks {
 public:
  virtual ~HeldBlocks() = default;
};

class HOLDFAST_EXPORT Directory {
 public:
  virtual ~Directory() = default;

  virtual const std::string& path() const = 0;  // for messages
  // nullptr if a file to read or overwrite is missing (ENOENT), or a file to create exists (EEXIST).
  virtual std::unique_ptr<File> open(std::string_view name, OpenMode mode) = 0;
  // nullptr if it is missing and `create` is false. Creates with mode 0700.
  virtual std::unique_ptr<Directory> open_directory(std::string_view name, bool create) = 0;
  virtual FileStatus own_status() const = 0;                                  // of the open directory
  virtual std::optional<FileStatus> status(std::string_view name) const = 0;  // never follows links
  virtual std::vector<DirectoryEntry> list() const = 0;                       // without . and .., any order
  // Never replaces: false if `to` exists. Uses renameat2(NOREPLACE), or link+unlink if that is missing.
  // Throws IoError with code ENOENT if `from` is gone.
  virtual bool rename_new(std::string_view from, std::string_view to) = 0;
  virtual void rename_over(std::string_view from, std::string_view to) = 0;
  virtual bool unlink(std::string_view name) = 0;  // false if it did not exist
  // Like unlink: the name is gone on return. If the file system allows it, the destructor of `blocks` frees
  // the blocks, on any thread. Otherwise they are freed now, and `blocks` is empty.
  virtual bool unlink_lazily(std::string_view name, std::unique_ptr<HeldBlocks>& blocks) {
    blocks.reset();
    return unlink(name);
  }
  virtual void sync() = 0;
};

class HOLDFAST_EXPORT FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Opens a directory by absolute or relative path. With `create`, makes missing components (0700 for the
  // last) and fsyncs the parents of the new ones. nullptr if it is missing and `create` is false.
  virtual std::unique_ptr<Directory> open_directory(const std::filesystem::path& path, bool create) = 0;
  // As open_directory(path, true), but the last one has the mode 0777 without the umask: a folder of files
  // that other programs read.
  virtual std::unique_ptr<Directory> make_shared_directory(const std::filesystem::path& path) {
    return open_directory(path, true);
  }
  // Opens a file outside run directories (a metrics file, a file given by --resume-from). A new one has the
  // mode 0666 without the umask.
  virtual std::unique_ptr<File> open_file(const std::filesystem::path& path, OpenMode mode) = 0;
  // True if `path` is the root of a mounted file system.
  virtual bool is_mount_point(const std::filesystem::path& path) const = 0;
  // True if `path` (or its nearest existing parent) lies on the same device as "/".
  virtual bool on_root_file_system(const std::filesystem::path& path) const = 0;

  // The machine's file system. The object lives as long as the process.
  static FileSystem& real();
};

// The directory that holds the file; "." for a bare name.
inline std::filesystem::path folder_of(const std::filesystem::path& file) {
  return file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
}

}}  // namespace holdfast::v0_2
