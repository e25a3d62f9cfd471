// The disk behind MemoryFileSystem: inodes, each with what is seen now and what is durable.
//
// Threads: whoever touches it holds Disk::mutex.
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

// Shared until written to.
using Bytes = std::shared_ptr<std::vector<std::byte>>;

struct Inode;
using InodePtr = std::shared_ptr<Inode>;
using Names = std::map<std::string, InodePtr, std::less<>>;

struct Inode {
  std::uint64_t number = 0;
  FileKind kind = FileKind::regular;
  std::uint32_t mode = 0600;
  Bytes data = std::make_shared<std::vector<std::byte>>();  // regular files
  Bytes durable_data = data;
  Names names;  // directories
  Names durable_names;

  // A copy of the data that may be changed in place.
  std::vector<std::byte>& writable();
};

struct MemoryFileSystem::Disk {
  mutable std::mutex mutex;
  InodePtr root;
  std::uint64_t next_inode = 2;
  std::uint64_t capacity = UINT64_MAX;
  std::set<std::string> mounts;
  std::map<std::string, InodePtr> unmounted;  // what lies on volumes that are away
  int open_handles = 0;
  bool holds_deleted = false;
  std::uint64_t held = 0;  // bytes that were deleted and not freed
  std::function<void()> before_freeing;

  Disk();
  InodePtr make(FileKind kind);
  InodePtr find(const std::filesystem::path& path) const;  // nullptr when missing; never through links
  std::uint64_t used() const;                              // bytes of all files that have a name
  // Grows or shrinks; false when that does not fit the capacity.
  bool resize(Inode& inode, std::uint64_t size);
  // Makes what is missing of `path`, durable at once.
  InodePtr make_directories(const std::filesystem::path& path);
  // What is durable, and of the rest what `keeps` says yes to; asked once for each thing that is not durable.
  // Names are asked for before the data behind them, "name /run/x" and "data 17".
  std::shared_ptr<Disk> clone(const std::function<bool(const std::string&)>& keeps) const;
};

}  // namespace holdfast::test
