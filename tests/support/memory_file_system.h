// A FileSystem in memory that remembers what a crash would leave. Hard on its users in the way disks are:
//
// - names and data are durable separately: data per inode by File::sync, names per directory by
//   Directory::sync; a name without its data is an empty file;
// - a file that is unlinked or renamed while open stays readable through its handle;
// - create_direct wants aligned pointers, offsets and sizes (EINVAL), rename_new never replaces, a full disk
//   says ENOSPC at reserve or write;
// - with lose_unsynced() the next read sees what a failed fsync leaves behind.
//
// crash() is the least that survives; copy() the most (everything reached the disk). Both leave this one
// alone, so one history can be cut at many points. Data is shared between copies until written to: copies are
// cheap. Paths are absolute; "/" exists. Faults and logs are put in front of it by fault_file_system.h.
//
// Threads: everything from any thread. Lifetime: handles keep the disk alive.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/io/file_system.h"

namespace holdfast::test {

// Offered by files of a MemoryFileSystem: the page cache drops what was not synced (Linux after a failed
// fsync).
class LosesUnsynced {
 public:
  virtual ~LosesUnsynced() = default;
  virtual void lose_unsynced() = 0;
};

class MemoryFileSystem final : public FileSystem {
 public:
  MemoryFileSystem();
  ~MemoryFileSystem() override;
  MemoryFileSystem(MemoryFileSystem&&) noexcept;
  MemoryFileSystem& operator=(MemoryFileSystem&&) noexcept;

  std::unique_ptr<Directory> open_directory(const std::filesystem::path& path, bool create) override;
  std::unique_ptr<File> open_file(const std::filesystem::path& path, OpenMode mode) override;
  bool is_mount_point(const std::filesystem::path& path) const override;
  bool on_root_file_system(const std::filesystem::path& path) const override;

  // What a power cut now leaves at least, and at most.
  MemoryFileSystem crash() const;
  MemoryFileSystem copy() const;
  // What a power cut now may or may not leave: names and data that were not synced yet. Ones that can only be
  // reached through a name in the list are found once that name is kept.
  std::vector<std::string> unsynced(const std::set<std::string>& kept) const;
  // What it leaves when of those exactly `kept` reached the disk.
  MemoryFileSystem crash_keeping(const std::set<std::string>& kept) const;

  // Bytes that all files together may hold; ENOSPC beyond. Unlimited at first.
  void set_capacity(std::uint64_t bytes);
  // From now on unlink_lazily holds what it deletes, which counts against the capacity. Called before it is
  // freed, by the thread that frees it.
  void hold_deleted(std::function<void()> before_freeing = {});
  std::uint64_t held() const;  // bytes deleted and not freed
  // Makes the directory, and a mount point of it.
  void mount(const std::filesystem::path& path);
  void unmount(const std::filesystem::path& path);

  // For tests to look and to damage; no handle, no durability: what put() writes is durable at once.
  bool exists(const std::filesystem::path& path) const;
  std::vector<std::byte> get(const std::filesystem::path& path) const;
  std::string get_text(const std::filesystem::path& path) const;
  void put(const std::filesystem::path& path, std::span<const std::byte> content);
  void put(const std::filesystem::path& path, std::string_view text);
  void flip_bit(const std::filesystem::path& path, std::uint64_t byte, int bit = 0);
  void link(const std::filesystem::path& path);                                  // a symbolic link lies there
  std::vector<std::string> names(const std::filesystem::path& directory) const;  // sorted
  int open_handles() const;

  struct Disk;

 private:
  explicit MemoryFileSystem(std::shared_ptr<Disk> disk);
  std::shared_ptr<Disk> disk_;
};

}  // namespace holdfast::test
