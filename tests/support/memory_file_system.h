// A FileSystem in memory that knows what a crash would leave. It is as strict as disks are:
//
// - Names and data become durable separately: data by File::sync, names by Directory::sync. A name without
//   its data is an empty file.
// - An open file that is unlinked or renamed stays readable.
// - create_direct wants aligned pointers, offsets and sizes (EINVAL). rename_new never replaces. A full disk:
//   ENOSPC.
//
// crash() returns the least that survives, copy() the most; both leave this object unchanged and are cheap.
// Paths are absolute. fault_file_system.h adds faults and logs. Threads: any. Handles keep the disk alive.
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

// Implemented by files and directories of a MemoryFileSystem: what a failed fsync may do. Linux drops unsynced
// data from the page cache. An unsynced name stays visible, but no later sync makes it durable.
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

  // The least and the most that a power cut now leaves.
  MemoryFileSystem crash() const;
  MemoryFileSystem copy() const;
  // Names and data that are not synced, so a power cut may or may not leave them. Those that only a listed
  // name reaches appear when that name is in `kept`.
  std::vector<std::string> unsynced(const std::set<std::string>& kept) const;
  // The disk after a power cut if exactly `kept` of them were written.
  MemoryFileSystem crash_keeping(const std::set<std::string>& kept) const;

  // Limit for the bytes of all files; ENOSPC beyond it. Unlimited by default.
  void set_capacity(std::uint64_t bytes);
  // From now on unlink_lazily holds deleted blocks, which count against the capacity. The freeing thread
  // calls `before_freeing` first.
  void hold_deleted(std::function<void()> before_freeing = {});
  std::uint64_t held() const;  // deleted bytes that were not freed
  // Creates the directory and makes it a mount point.
  void mount(const std::filesystem::path& path);
  void unmount(const std::filesystem::path& path);
  // Like chown and chmod.
  void give(const std::filesystem::path& path, std::uint32_t owner, std::uint32_t group, std::uint32_t mode);
  // New files belong to that user, as on a server with root squash.
  void map_owner(std::uint32_t owner);

  // Inspection and damage without handles. put() is durable at once.
  bool exists(const std::filesystem::path& path) const;
  std::vector<std::byte> get(const std::filesystem::path& path) const;
  std::string get_text(const std::filesystem::path& path) const;
  void put(const std::filesystem::path& path, std::span<const std::byte> content);
  void put(const std::filesystem::path& path, std::string_view text);
  void flip_bit(const std::filesystem::path& path, std::uint64_t byte, int bit = 0);
  void link(const std::filesystem::path& path);                                  // makes it a symbolic link
  std::vector<std::string> names(const std::filesystem::path& directory) const;  // sorted
  int open_handles() const;

  struct Disk;

 private:
  explicit MemoryFileSystem(std::shared_ptr<Disk> disk);
  std::shared_ptr<Disk> disk_;
};

}  // namespace holdfast::test
