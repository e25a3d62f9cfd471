#include "support/memory_disk.h"

#include <unistd.h>

#include <functional>
#include <unordered_map>

namespace holdfast::test {

std::vector<std::byte>& Inode::writable() {
  // With one owner no second one can appear: copies are made under the disk's lock.
  if (data.use_count() != 1) data = std::make_shared<std::vector<std::byte>>(*data);
  return *data;
}

MemoryFileSystem::Disk::Disk() : root(std::make_shared<Inode>()), owner(geteuid()) {
  root->number = 1;
  root->kind = FileKind::directory;
  root->mode = 0755;
}

InodePtr MemoryFileSystem::Disk::make(FileKind kind) {
  auto inode = std::make_shared<Inode>();
  inode->number = next_inode++;
  inode->kind = kind;
  inode->mode = kind == FileKind::directory ? 0700 : 0600;
  inode->owner = owner;
  inode->group = getegid();
  return inode;
}

std::uint64_t MemoryFileSystem::Disk::device_of(const std::filesystem::path& path) const {
  for (auto at = path.lexically_normal(); at != at.root_path(); at = at.parent_path()) {
    const auto mount = mounts.find(at.native());
    if (mount != mounts.end()) return 2 + static_cast<std::uint64_t>(std::distance(mounts.begin(), mount));
  }
  return 1;
}

InodePtr MemoryFileSystem::Disk::find(const std::filesystem::path& path) const {
  InodePtr at = root;
  for (const auto& component : path.relative_path()) {
    if (component.empty()) continue;
    if (at->kind != FileKind::directory) return nullptr;
    const auto found = at->names.find(component.native());
    if (found == at->names.end()) return nullptr;
    at = found->second;
  }
  return at;
}

std::uint64_t MemoryFileSystem::Disk::used() const {
  const std::function<std::uint64_t(const Inode&)> sum = [&](const Inode& inode) {
    std::uint64_t bytes = inode.data->size();
    for (const auto& [name, child] : inode.names) bytes += sum(*child);
    return bytes;
  };
  return held + sum(*root);
}

bool MemoryFileSystem::Disk::resize(Inode& inode, std::uint64_t size) {
  const std::uint64_t old = inode.data->size();
  if (size == old) return true;
  if (size > old && capacity != UINT64_MAX && used() + (size - old) > capacity) return false;
  inode.writable().resize(size);
  return true;
}

InodePtr MemoryFileSystem::Disk::make_directories(const std::filesystem::path& path) {
  InodePtr at = root;
  for (const auto& component : path.relative_path()) {
    if (component.empty()) continue;
    InodePtr& child = at->names[component.native()];
    if (child == nullptr) child = make(FileKind::directory);
    if (child->kind != FileKind::directory) return nullptr;
    // Syncs the parent, which makes every name in it durable.
    at->durable_names = at->names;
    at = child;
  }
  return at;
}

std::shared_ptr<MemoryFileSystem::Disk> MemoryFileSystem::Disk::clone(
    const std::function<bool(const std::string&)>& keeps) const {
  auto copy = std::make_shared<Disk>();
  copy->next_inode = next_inode;
  copy->capacity = capacity;
  copy->mounts = mounts;
  copy->owner = owner;
  // One inode may have two names (a half-durable rename).
  std::unordered_map<const Inode*, InodePtr> made;
  const std::function<InodePtr(const Inode&, const std::string&)> take = [&](const Inode& inode,
                                                                             const std::string& path) {
    InodePtr& taken = made[&inode];
    if (taken != nullptr) return taken;
    taken = std::make_shared<Inode>();
    InodePtr result = taken;  // `made` may grow below
    result->number = inode.number;
    result->kind = inode.kind;
    result->mode = inode.mode;
    result->owner = inode.owner;
    result->group = inode.group;
    const bool open = inode.data != inode.durable_data;
    result->data = open && keeps("data " + std::to_string(inode.number)) ? inode.data : inode.durable_data;
    result->durable_data = result->data;
    Names names = inode.durable_names;
    for (const auto& [name, child] : inode.names) {
      const auto durable = inode.durable_names.find(name);
      if (durable != inode.durable_names.end() && durable->second == child) continue;
      if (keeps("name " + path + "/" + name)) names.insert_or_assign(name, child);
    }
    for (const auto& [name, child] : inode.durable_names) {
      if (!inode.names.contains(name) && keeps("name " + path + "/" + name)) names.erase(name);
    }
    for (const auto& [name, child] : names) result->names.emplace(name, take(*child, path + "/" + name));
    result->durable_names = result->names;
    return result;
  };
  copy->root = take(*root, "");
  for (const auto& [path, inode] : unmounted) copy->unmounted.emplace(path, take(*inode, path));
  return copy;
}

}  // namespace holdfast::test
