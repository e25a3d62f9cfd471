// The disk of MemoryFileSystem: inodes, each with its present and its durable content.
//
// Threads: the caller holds Disk::mutex.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "support/memory_file_system.h"

namespace holdfast::test {

// Shared until one owner writes.
using Bytes = std::shared_ptr<std::vector<std::byte>>;

struct Inode;
using InodePtr = std::shared_ptr<Inode>;
using Names = std::map<std::string, InodePtr, std::less<>>;

struct Inode {
  std::uint64_t number = 0;
  FileKind kind = FileKind::regular;
  std::uint32_t mode = 0600;
  std::uint32_t owner = 0;
  std::uint32_t group = 0;
  Bytes data = std::make_shared<std::vector<std::byte>>();  // regular files
  Bytes durable_data = data;
  Names names;  // directories
  Names durable_names;
  Names lost_names;  // dropped by a failed sync: a later sync does not write them

  // The data for changes in place; makes a copy if others share it.
  std::vector<std::byte>& writable();
};

struct MemoryFileSystem::Disk {
  mutable std::mutex mutex;
  InodePtr root;
  std::uint64_t next_inode = 2;
  std::uint64_t capacity = UINT64_MAX;
  std::set<std::string> mounts;
  std::map<std::string, InodePtr> unmounted;  // content of volumes that are not mounted
  std::uint32_t owner;                        // owner of new files
  int open_handles = 0;
  bool holds_deleted = false;
  std::uint64_t held = 0;  // deleted bytes that were not freed
  std::function<void()> before_freeing;

  Disk();
  InodePtr make(FileKind kind);
  std::uint64_t device_of(const std::filesystem::path& path) const;  // 1: the root disk
  InodePtr find(const std::filesystem::path& path) const;  // nullptr if missing; does not follow links
  std::uint64_t used() const;                              // bytes of all files that have a name
  // Grows or shrinks. False if it exceeds the capacity.
  bool resize(Inode& inode, std::uint64_t size);
  // Creates missing directories of `path`, durable at once.
  InodePtr make_directories(const std::filesystem::path& path);
  // What is durable, and of the rest what `keeps` says yes to; asked once for each thing that is not durable.
  // Names are asked for before the data behind them, "name /run/x" and "data 17".
  std::shared_ptr<Disk> clone(const std::function<bool(const std::string&)>& keeps) const;
};

}  // namespace holdfast::test
