// The only way to the disk. Every byte that Holdfast reads or writes in a run directory passes through here,
// so tests can put an in-memory, failing or recording file system in its place.
//
// A Directory is an open descriptor; names are single path components resolved beneath it, never through a
// symbolic link. No method retries fsync, ever: after one failure the page cache may claim success while the
// disk holds zeros. EINTR is retried everywhere else.
//
// Errors: every failure throws IoError with the operation, the path and the errno, except where a return
// value says otherwise. A short read or write is completed or becomes an error.
// Threads: File::read_at and write_at may be called at once from several threads; everything else on one
// object by one thread at a time. FileSystem and const Directory methods may be called from any thread.
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

namespace holdfast::inline v1 {

enum class FileKind { regular, directory, symlink, other };

struct FileStatus {
  FileKind kind = FileKind::other;
  std::uint64_t size = 0;
  std::uint64_t inode = 0;
  std::uint32_t mode = 0;   // permission bits
  std::uint64_t links = 1;  // names of the file
};

struct DirectoryEntry {
  std::string name;
  FileKind kind = FileKind::other;
};

class File {
 public:
  virtual ~File() = default;  // closes without reporting; writers call close()

  virtual std::uint64_t size() const = 0;
  // Reads up to buffer.size() bytes; fewer only at the end of the file.
  virtual std::size_t read_at(std::span<std::byte> buffer, std::uint64_t offset) const = 0;
  // Reads all of `buffer` from the device, not from the page cache, as far as the system allows (O_DIRECT,
  // or dropping the cached pages first). Same result as read_at.
  virtual std::size_t read_uncached_at(std::span<std::byte> buffer, std::uint64_t offset) const = 0;
  // Writes all of `data`. In the modes `…_direct`, pointer, size and offset are multiples of 4096.
  virtual void write_at(std::span<const std::byte> data, std::uint64_t offset) = 0;
  // Makes room for `length` bytes now, so that ENOSPC appears here. Where the file system cannot
  // (EOPNOTSUPP), does nothing.
  virtual void reserve(std::uint64_t length) = 0;
  virtual void truncate(std::uint64_t length) = 0;
  virtual void sync() = 0;
  // Reports the errors that only close can see (NFS, EDQUOT). The file is gone either way.
  virtual void close() = 0;
};

enum class OpenMode {
  read,              // must exist
  create,            // read and write; must not exist (O_EXCL), mode 0600
  create_direct,     // as create, with O_DIRECT where the file system takes it; otherwise buffered, the
                     // page cache kept clean behind it
  overwrite_direct,  // as create_direct, but must exist, and keeps its length and bytes
  append,            // created when missing, mode 0600; write_at's offset is ignored, bytes go to the end
};

// What a deleted file took up on its device. Destroying it gives the blocks back, which takes seconds for a
// large file on a volume mounted with `discard`.
class HeldBlocks {
 public:
  virtual ~HeldBlocks() = default;
};

class Directory {
 public:
  virtual ~Directory() = default;

  virtual const std::string& path() const = 0;  // for messages
  // nullptr when a file to read or overwrite does not exist (ENOENT) or a file to create does (EEXIST).
  virtual std::unique_ptr<File> open(std::string_view name, OpenMode mode) = 0;
  // nullptr when it does not exist and `create` is false. Creates with mode 0700.
  virtual std::unique_ptr<Directory> open_directory(std::string_view name, bool create) = 0;
  virtual std::optional<FileStatus> status(std::string_view name) const = 0;  // never follows links
  virtual std::vector<DirectoryEntry> list() const = 0;                       // without . and .., any order
  // Never replaces: false when `to` exists. renameat2(NOREPLACE), or link+unlink where that is missing.
  // ENOENT (the source is gone) is thrown as IoError with code ENOENT.
  virtual bool rename_new(std::string_view from, std::string_view to) = 0;
  virtual void rename_over(std::string_view from, std::string_view to) = 0;
  virtual bool unlink(std::string_view name) = 0;  // false when it did not exist
  // As unlink: the name is gone when it returns. Where the file system can, the file's blocks are freed when
  // `blocks` is destroyed, by whichever thread; elsewhere at once, and `blocks` is left empty.
  virtual bool unlink_lazily(std::string_view name, std::unique_ptr<HeldBlocks>& blocks) {
    blocks.reset();
    return unlink(name);
  }
  virtual void sync() = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Opens a directory by absolute or relative path. With `create`, makes the missing components (0700 for the
  // last) and fsyncs the parents of those it made. nullptr when missing and not `create`.
  virtual std::unique_ptr<Directory> open_directory(const std::filesystem::path& path, bool create) = 0;
  // Opens a file outside run directories (a metrics file, a file given by --resume-from).
  virtual std::unique_ptr<File> open_file(const std::filesystem::path& path, OpenMode mode) = 0;
  // True when `path` is the root of a mounted file system (its device differs from its parent's).
  virtual bool is_mount_point(const std::filesystem::path& path) const = 0;
  // True when `path` (or its nearest existing parent) lies on the same device as "/".
  virtual bool on_root_file_system(const std::filesystem::path& path) const = 0;

  // The machine's file system. Lives for the whole process.
  static FileSystem& real();
};

}  // namespace holdfast::inline v1
