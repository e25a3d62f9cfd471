// The members of MemoryFileSystem that only tests use: inspection, damage, mounts.
#include <algorithm>
#include <cerrno>

#include "holdfast/base/error.h"
#include "support/memory_disk.h"

namespace holdfast::test {
namespace {

using Lock = std::lock_guard<std::mutex>;

InodePtr file_at(const MemoryFileSystem::Disk& disk, const std::filesystem::path& path) {
  InodePtr inode = disk.find(path);
  if (inode == nullptr || inode->kind != FileKind::regular)
    throw IoError("test access", path.native(), ENOENT);
  return inode;
}

}  // namespace

void MemoryFileSystem::set_capacity(std::uint64_t bytes) {
  const Lock lock(disk_->mutex);
  disk_->capacity = bytes;
}

void MemoryFileSystem::mount(const std::filesystem::path& path) {
  const Lock lock(disk_->mutex);
  const InodePtr point = disk_->make_directories(path);
  disk_->mounts.insert(path.native());
  const auto away = disk_->unmounted.find(path.native());
  if (away == disk_->unmounted.end()) return;
  std::swap(*point, *away->second);
  disk_->unmounted.erase(away);
}

void MemoryFileSystem::give(const std::filesystem::path& path, std::uint32_t owner, std::uint32_t group,
                            std::uint32_t mode) {
  const Lock lock(disk_->mutex);
  const InodePtr inode = disk_->find(path);
  inode->owner = owner;
  inode->group = group;
  inode->mode = mode;
}

void MemoryFileSystem::map_owner(std::uint32_t owner) {
  const Lock lock(disk_->mutex);
  disk_->owner = owner;
}

void MemoryFileSystem::unmount(const std::filesystem::path& path) {
  const Lock lock(disk_->mutex);
  const InodePtr point = disk_->make_directories(path);
  const InodePtr empty = disk_->make(FileKind::directory);
  std::swap(*point, *empty);
  disk_->unmounted.insert_or_assign(path.native(), empty);
  disk_->mounts.erase(path.native());
}

bool MemoryFileSystem::exists(const std::filesystem::path& path) const {
  const Lock lock(disk_->mutex);
  return disk_->find(path) != nullptr;
}

std::vector<std::byte> MemoryFileSystem::get(const std::filesystem::path& path) const {
  const Lock lock(disk_->mutex);
  return *file_at(*disk_, path)->data;
}

std::string MemoryFileSystem::get_text(const std::filesystem::path& path) const {
  const std::vector<std::byte> bytes = get(path);
  std::string text(bytes.size(), '\0');
  std::transform(bytes.begin(), bytes.end(), text.begin(), [](std::byte b) { return static_cast<char>(b); });
  return text;
}

void MemoryFileSystem::put(const std::filesystem::path& path, std::span<const std::byte> content) {
  const Lock lock(disk_->mutex);
  const InodePtr directory = disk_->make_directories(path.parent_path());
  InodePtr& inode = directory->names[path.filename().native()];
  if (inode == nullptr) inode = disk_->make(FileKind::regular);
  inode->data = std::make_shared<std::vector<std::byte>>(content.begin(), content.end());
  inode->durable_data = inode->data;
  directory->durable_names.insert_or_assign(path.filename().native(), inode);
}

void MemoryFileSystem::put(const std::filesystem::path& path, std::string_view text) {
  put(path, std::as_bytes(std::span(text)));
}

void MemoryFileSystem::flip_bit(const std::filesystem::path& path, std::uint64_t byte, int bit) {
  const Lock lock(disk_->mutex);
  const InodePtr inode = file_at(*disk_, path);
  if (byte >= inode->data->size()) throw IoError("flip_bit", path.native(), EINVAL);
  inode->writable()[byte] ^= std::byte{1} << bit;
  inode->durable_data = inode->data;
}

void MemoryFileSystem::link(const std::filesystem::path& path) {
  const Lock lock(disk_->mutex);
  const InodePtr directory = disk_->make_directories(path.parent_path());
  const InodePtr inode = disk_->make(FileKind::symlink);
  directory->names.insert_or_assign(path.filename().native(), inode);
  directory->durable_names.insert_or_assign(path.filename().native(), inode);
}

std::vector<std::string> MemoryFileSystem::names(const std::filesystem::path& directory) const {
  const Lock lock(disk_->mutex);
  const InodePtr inode = disk_->find(directory);
  std::vector<std::string> names;
  if (inode == nullptr) return names;
  for (const auto& [name, child] : inode->names) names.push_back(name);
  return names;
}

int MemoryFileSystem::open_handles() const {
  const Lock lock(disk_->mutex);
  return disk_->open_handles;
}

}  // namespace holdfast::test
