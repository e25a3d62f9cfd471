#include "support/memory_file_system.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "holdfast/base/error.h"
#include "support/memory_disk.h"
#include "support/open_beneath.h"

namespace holdfast::test {
namespace {

using DiskPtr = std::shared_ptr<MemoryFileSystem::Disk>;
using Lock = std::lock_guard<std::mutex>;

[[noreturn]] void fail(const char* operation, const std::string& path, int code) {
  throw IoError(operation, path, code);
}

void check_name(const std::string& directory, std::string_view name) {
  if (name.empty() || name == "." || name == ".." || name.size() > 255 ||
      name.find_first_of(std::string_view("/\0", 2)) != std::string_view::npos) {
    throw UsageError("not a file name within " + directory + ": \"" + std::string(name) + "\"");
  }
}

class MemoryFile final : public File, public LosesUnsynced {
 public:
  MemoryFile(DiskPtr disk, InodePtr inode, std::string path, OpenMode mode)
      : disk_(std::move(disk)), inode_(std::move(inode)), path_(std::move(path)), mode_(mode) {
    ++disk_->open_handles;
  }
  ~MemoryFile() override {
    const Lock lock(disk_->mutex);
    leave();
  }

  std::uint64_t size() const override {
    const Lock lock(disk_->mutex);
    check_open("fstat");
    return inode_->data->size();
  }

  std::size_t read_at(std::span<std::byte> buffer, std::uint64_t offset) const override {
    const Lock lock(disk_->mutex);
    check_open("read");
    const auto& data = *inode_->data;
    if (offset >= data.size()) return 0;
    const std::size_t count = std::min<std::uint64_t>(buffer.size(), data.size() - offset);
    if (count > 0) std::memcpy(buffer.data(), data.data() + offset, count);
    return count;
  }

  std::size_t read_uncached_at(std::span<std::byte> buffer, std::uint64_t offset) const override {
    return read_at(buffer, offset);
  }

  void write_at(std::span<const std::byte> data, std::uint64_t offset) override {
    const Lock lock(disk_->mutex);
    check_writable("write");
    if ((mode_ == OpenMode::create_direct || mode_ == OpenMode::overwrite_direct) &&
        (reinterpret_cast<std::uintptr_t>(data.data()) | offset | data.size()) % 4096 != 0) {
      fail("write", path_, EINVAL);
    }
    if (mode_ == OpenMode::append) offset = inode_->data->size();
    if (data.empty()) return;
    const std::uint64_t end = offset + data.size();
    if (end > inode_->data->size() && !disk_->resize(*inode_, end)) fail("write", path_, ENOSPC);
    std::memcpy(inode_->writable().data() + offset, data.data(), data.size());
  }

  void reserve(std::uint64_t length) override {
    const Lock lock(disk_->mutex);
    check_writable("fallocate");
    if (length > inode_->data->size() && !disk_->resize(*inode_, length)) fail("fallocate", path_, ENOSPC);
  }

  void truncate(std::uint64_t length) override {
    const Lock lock(disk_->mutex);
    check_writable("ftruncate");
    if (!disk_->resize(*inode_, length)) fail("ftruncate", path_, ENOSPC);
  }

  void sync() override {
    const Lock lock(disk_->mutex);
    check_open("fsync");
    inode_->durable_data = inode_->data;
  }

  void close() override {
    const Lock lock(disk_->mutex);
    leave();
  }

  void lose_unsynced() override {
    const Lock lock(disk_->mutex);
    const Bytes kept = inode_->durable_data;
    auto& data = inode_->writable();
    std::fill(data.begin(), data.end(), std::byte{0});
    if (!kept->empty()) std::memcpy(data.data(), kept->data(), std::min(kept->size(), data.size()));
  }

 private:
  void check_open(const char* operation) const {
    if (closed_) fail(operation, path_, EBADF);
  }
  void check_writable(const char* operation) const {
    if (closed_ || mode_ == OpenMode::read) fail(operation, path_, EBADF);
  }
  void leave() {
    if (!std::exchange(closed_, true)) --disk_->open_handles;
  }

  DiskPtr disk_;
  InodePtr inode_;
  std::string path_;
  OpenMode mode_;
  bool closed_ = false;
};

class MemoryBlocks final : public HeldBlocks {
 public:
  MemoryBlocks(DiskPtr disk, std::uint64_t bytes) : disk_(std::move(disk)), bytes_(bytes) {
    const Lock lock(disk_->mutex);
    disk_->held += bytes_;
  }
  ~MemoryBlocks() override {
    std::function<void()> wait;
    {
      const Lock lock(disk_->mutex);
      wait = disk_->before_freeing;
    }
    if (wait) wait();
    const Lock lock(disk_->mutex);
    disk_->held -= bytes_;
  }

 private:
  DiskPtr disk_;
  std::uint64_t bytes_;
};

class MemoryDirectory final : public Directory, public LosesUnsynced {
 public:
  MemoryDirectory(DiskPtr disk, InodePtr inode, std::string path)
      : disk_(std::move(disk)),
        inode_(std::move(inode)),
        path_(std::move(path)),
        device_(disk_->device_of(path_)) {
    ++disk_->open_handles;
  }
  ~MemoryDirectory() override {
    const Lock lock(disk_->mutex);
    --disk_->open_handles;
  }

  const std::string& path() const override { return path_; }

  std::unique_ptr<File> open(std::string_view name, OpenMode mode) override {
    check_name(path_, name);
    const Lock lock(disk_->mutex);
    const bool create =
        mode == OpenMode::create || mode == OpenMode::create_shared || mode == OpenMode::create_direct;
    InodePtr inode = find(name);
    if (create && inode != nullptr) return nullptr;
    const bool must_exist = mode == OpenMode::read || mode == OpenMode::overwrite_direct;
    if (must_exist && inode == nullptr) return nullptr;
    if (inode == nullptr) {
      inode = disk_->make(FileKind::regular);
      inode_->names.emplace(name, inode);
    }
    if (inode->kind != FileKind::regular) {
      fail("open", full(name), inode->kind == FileKind::symlink ? ELOOP : EISDIR);
    }
    return std::make_unique<MemoryFile>(disk_, inode, full(name), mode);
  }

  std::unique_ptr<Directory> open_directory(std::string_view name, bool create) override {
    check_name(path_, name);
    const Lock lock(disk_->mutex);
    InodePtr inode = find(name);
    if (inode == nullptr) {
      if (!create) return nullptr;
      inode = disk_->make(FileKind::directory);
      inode_->names.emplace(name, inode);
    }
    if (inode->kind != FileKind::directory) {
      fail("open", full(name), inode->kind == FileKind::symlink ? ELOOP : ENOTDIR);
    }
    return std::make_unique<MemoryDirectory>(disk_, inode, full(name));
  }

  FileStatus own_status() const override {
    const Lock lock(disk_->mutex);
    return status_of(*inode_);
  }

  std::optional<FileStatus> status(std::string_view name) const override {
    check_name(path_, name);
    const Lock lock(disk_->mutex);
    const InodePtr inode = find(name);
    if (inode == nullptr) return std::nullopt;
    return status_of(*inode);
  }

  std::vector<DirectoryEntry> list() const override {
    const Lock lock(disk_->mutex);
    std::vector<DirectoryEntry> entries;
    for (const auto& [name, inode] : inode_->names) entries.push_back({.name = name, .kind = inode->kind});
    // Any order is allowed. Not sorted, because no real file system promises that.
    std::reverse(entries.begin(), entries.end());
    return entries;
  }

  bool rename_new(std::string_view from, std::string_view to) override {
    check_name(path_, to);
    const Lock lock(disk_->mutex);
    if (source(from, to) != nullptr && find(to) != nullptr) return false;
    move(from, to);
    return true;
  }

  void rename_over(std::string_view from, std::string_view to) override {
    check_name(path_, to);
    const Lock lock(disk_->mutex);
    source(from, to);
    if (from != to) move(from, to);
  }

  bool unlink(std::string_view name) override {
    check_name(path_, name);
    const Lock lock(disk_->mutex);
    const InodePtr inode = find(name);
    if (inode == nullptr) return false;
    if (inode->kind == FileKind::directory) fail("unlink", full(name), EISDIR);
    inode_->names.erase(inode_->names.find(name));
    return true;
  }

  bool unlink_lazily(std::string_view name, std::unique_ptr<HeldBlocks>& blocks) override {
    std::uint64_t bytes = 0;
    {
      const Lock lock(disk_->mutex);
      const InodePtr inode = find(name);
      bytes = inode != nullptr ? inode->data->size() : 0;
    }
    if (!unlink(name)) return false;
    blocks.reset();
    if (disk_->holds_deleted) blocks = std::make_unique<MemoryBlocks>(disk_, bytes);
    return true;
  }

  void sync() override {
    const Lock lock(disk_->mutex);
    const auto is_lost = [&](const auto& name) {
      const auto lost = inode_->lost_names.find(name.first);
      return lost != inode_->lost_names.end() && lost->second == name.second;
    };
    inode_->durable_names = inode_->names;
    std::erase_if(inode_->durable_names, is_lost);
  }

  void lose_unsynced() override {
    const Lock lock(disk_->mutex);
    for (const auto& [name, inode] : inode_->names) {
      const auto durable = inode_->durable_names.find(name);
      if (durable == inode_->durable_names.end() || durable->second != inode) {
        inode_->lost_names.insert_or_assign(name, inode);
      }
    }
  }

 private:
  std::string full(std::string_view name) const { return (std::filesystem::path(path_) / name).native(); }

  FileStatus status_of(const Inode& inode) const {
    return {.kind = inode.kind,
            .size = inode.data->size(),
            .inode = inode.number,
            .mode = inode.mode,
            .device = device_,
            .owner = inode.owner,
            .group = inode.group};
  }

  InodePtr find(std::string_view name) const {
    const auto found = inode_->names.find(name);
    return found == inode_->names.end() ? nullptr : found->second;
  }

  InodePtr source(std::string_view from, std::string_view to) const {
    check_name(path_, from);
    InodePtr inode = find(from);
    if (inode == nullptr) fail("rename", full(from) + " -> " + std::string(to), ENOENT);
    return inode;
  }

  void move(std::string_view from, std::string_view to) {
    const auto found = inode_->names.find(from);
    InodePtr inode = found->second;
    inode_->names.erase(found);
    inode_->names.insert_or_assign(std::string(to), std::move(inode));
  }

  DiskPtr disk_;
  InodePtr inode_;
  std::string path_;
  std::uint64_t device_;
};

}  // namespace

MemoryFileSystem::MemoryFileSystem() : MemoryFileSystem(std::make_shared<Disk>()) {}
MemoryFileSystem::MemoryFileSystem(std::shared_ptr<Disk> disk) : disk_(std::move(disk)) {}
MemoryFileSystem::~MemoryFileSystem() = default;
MemoryFileSystem::MemoryFileSystem(MemoryFileSystem&&) noexcept = default;
MemoryFileSystem& MemoryFileSystem::operator=(MemoryFileSystem&&) noexcept = default;

std::unique_ptr<Directory> MemoryFileSystem::open_directory(const std::filesystem::path& path, bool create) {
  const Lock lock(disk_->mutex);
  InodePtr inode = disk_->find(path);
  if (inode == nullptr) {
    if (!create) return nullptr;
    inode = disk_->make_directories(path);
  }
  if (inode == nullptr || inode->kind != FileKind::directory) fail("open", path.native(), ENOTDIR);
  return std::make_unique<MemoryDirectory>(disk_, inode, path.native());
}

std::unique_ptr<File> MemoryFileSystem::open_file(const std::filesystem::path& path, OpenMode mode) {
  return open_beneath_parent(*this, path, mode);
}

bool MemoryFileSystem::is_mount_point(const std::filesystem::path& path) const {
  const Lock lock(disk_->mutex);
  return disk_->mounts.contains(path.lexically_normal().native());
}

bool MemoryFileSystem::on_root_file_system(const std::filesystem::path& path) const {
  const Lock lock(disk_->mutex);
  for (std::filesystem::path at = path.lexically_normal(); at != at.root_path(); at = at.parent_path()) {
    if (disk_->mounts.contains(at.native())) return false;
  }
  return true;
}

void MemoryFileSystem::hold_deleted(std::function<void()> before_freeing) {
  const Lock lock(disk_->mutex);
  disk_->holds_deleted = true;
  disk_->before_freeing = std::move(before_freeing);
}

std::uint64_t MemoryFileSystem::held() const {
  const Lock lock(disk_->mutex);
  return disk_->held;
}

MemoryFileSystem MemoryFileSystem::crash() const {
  const Lock lock(disk_->mutex);
  return MemoryFileSystem(disk_->clone([](const std::string&) { return false; }));
}

MemoryFileSystem MemoryFileSystem::copy() const {
  const Lock lock(disk_->mutex);
  return MemoryFileSystem(disk_->clone([](const std::string&) { return true; }));
}

std::vector<std::string> MemoryFileSystem::unsynced(const std::set<std::string>& kept) const {
  const Lock lock(disk_->mutex);
  std::vector<std::string> open;
  disk_->clone([&](const std::string& thing) {
    open.push_back(thing);
    return kept.contains(thing);
  });
  return open;
}

MemoryFileSystem MemoryFileSystem::crash_keeping(const std::set<std::string>& kept) const {
  const Lock lock(disk_->mutex);
  return MemoryFileSystem(disk_->clone([&](const std::string& thing) { return kept.contains(thing); }));
}

}  // namespace holdfast::test
