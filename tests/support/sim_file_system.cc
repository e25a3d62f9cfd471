#include "support/sim_file_system.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "holdfast/base/error.h"
#include "support/open_beneath.h"

namespace holdfast::test {
namespace {

[[noreturn]] void fail(const char* operation, const std::string& path, int code) {
  throw IoError(operation, path, code);
}

void check_name(const std::string& directory, std::string_view name) {
  if (name.empty() || name == "." || name == ".." || name.size() > 255 ||
      name.find_first_of(std::string_view("/\0", 2)) != std::string_view::npos) {
    throw UsageError("not a file name within " + directory + ": \"" + std::string(name) + "\"");
  }
}

class SimFile final : public File {
 public:
  SimFile(SimFileSystem& files, SimDisk::Node node, std::string path, OpenMode mode)
      : files_(files), node_(node), path_(std::move(path)), mode_(mode) {}

  std::uint64_t size() const override {
    check_open("fstat");
    return files_.disk().at(node_).size;
  }
  std::size_t read_at(std::span<std::byte> buffer, std::uint64_t offset) const override {
    check_open("read");
    return files_.disk().read(node_, buffer, offset);
  }
  std::size_t read_uncached_at(std::span<std::byte> buffer, std::uint64_t offset) const override {
    return read_at(buffer, offset);
  }
  void write_at(std::span<const std::byte> data, std::uint64_t offset) override {
    check_writable("write");
    if ((mode_ == OpenMode::create_direct || mode_ == OpenMode::overwrite_direct) &&
        (reinterpret_cast<std::uintptr_t>(data.data()) | offset | data.size()) % kSimBlock != 0) {
      fail("write", path_, EINVAL);
    }
    if (mode_ == OpenMode::append) offset = size();
    if (data.empty()) return;
    files_.disk().write(node_, data, offset);
    files_.changed("write", path_);
  }
  void reserve(std::uint64_t length) override {
    check_writable("fallocate");
    if (length > size()) files_.disk().resize(node_, length);
    files_.changed("fallocate", path_);
  }
  void truncate(std::uint64_t length) override {
    check_writable("ftruncate");
    files_.disk().resize(node_, length);
    files_.changed("ftruncate", path_);
  }
  void sync() override {
    check_open("fsync");
    files_.disk().sync_data(node_);
    files_.changed("fsync", path_);
  }
  void close() override { closed_ = true; }

  std::uint64_t content_hash() const { return files_.disk().content_hash(node_); }

 private:
  void check_open(const char* operation) const {
    if (closed_) fail(operation, path_, EBADF);
  }
  void check_writable(const char* operation) const {
    if (closed_ || mode_ == OpenMode::read) fail(operation, path_, EBADF);
  }

  SimFileSystem& files_;
  const SimDisk::Node node_;
  const std::string path_;
  const OpenMode mode_;
  bool closed_ = false;
};

class SimDirectory final : public Directory {
 public:
  SimDirectory(SimFileSystem& files, SimDisk::Node node, std::string path)
      : files_(files), node_(node), path_(std::move(path)) {}

  const std::string& path() const override { return path_; }

  std::unique_ptr<File> open(std::string_view name, OpenMode mode) override {
    check_name(path_, name);
    auto node = disk().find(node_, name);
    const bool create =
        mode == OpenMode::create || mode == OpenMode::create_shared || mode == OpenMode::create_direct;
    if (node && create) return nullptr;
    if (!node) {
      if (mode == OpenMode::read || mode == OpenMode::overwrite_direct) return nullptr;
      node = disk().make(node_, name, FileKind::regular);
      files_.changed("create", path_, name);
    }
    if (disk().at(*node).kind != FileKind::regular) fail("open", full(name), EISDIR);
    return std::make_unique<SimFile>(files_, *node, full(name), mode);
  }

  std::unique_ptr<Directory> open_directory(std::string_view name, bool create) override {
    check_name(path_, name);
    auto node = disk().find(node_, name);
    if (!node) {
      if (!create) return nullptr;
      node = disk().make(node_, name, FileKind::directory);
      files_.changed("mkdir", path_, name);
    }
    if (disk().at(*node).kind != FileKind::directory) fail("open", full(name), ENOTDIR);
    return std::make_unique<SimDirectory>(files_, *node, full(name));
  }

  FileStatus own_status() const override {
    return {.kind = FileKind::directory, .inode = node_ + 1, .mode = 0700, .owner = geteuid()};
  }

  std::optional<FileStatus> status(std::string_view name) const override {
    check_name(path_, name);
    const auto node = disk().find(node_, name);
    if (!node) return std::nullopt;
    const SimInode& inode = disk().at(*node);
    const bool directory = inode.kind == FileKind::directory;
    return FileStatus{
        .kind = inode.kind, .size = inode.size, .inode = *node + 1, .mode = directory ? 0700U : 0600U};
  }

  std::vector<DirectoryEntry> list() const override {
    std::vector<DirectoryEntry> entries;
    const auto& names = disk().at(node_).names;
    entries.reserve(names.size());
    for (const auto& [name, node] : names) entries.push_back({name->text, disk().at(node).kind});
    return entries;
  }

  bool rename_new(std::string_view from, std::string_view to) override {
    check_name(path_, to);
    require(from, to);
    if (disk().find(node_, to)) return false;
    move(from, to);
    return true;
  }
  void rename_over(std::string_view from, std::string_view to) override {
    check_name(path_, to);
    require(from, to);
    if (from != to) move(from, to);
  }
  bool unlink(std::string_view name) override {
    check_name(path_, name);
    const auto node = disk().find(node_, name);
    if (!node) return false;
    if (disk().at(*node).kind == FileKind::directory) fail("unlink", full(name), EISDIR);
    disk().unlink(node_, name);
    files_.changed("unlink", path_, name);
    return true;
  }
  void sync() override {
    disk().sync_names(node_);
    files_.changed("fsync", path_);
  }

 private:
  SimDisk& disk() { return files_.disk(); }
  const SimDisk& disk() const { return files_.disk(); }
  std::string full(std::string_view name) const { return path_ + "/" + std::string(name); }
  void require(std::string_view from, std::string_view to) const {
    check_name(path_, from);
    if (!disk().find(node_, from)) fail("rename", full(from) + " -> " + std::string(to), ENOENT);
  }
  void move(std::string_view from, std::string_view to) {
    disk().rename(node_, from, to);
    files_.changed("rename", path_, from, to);
  }

  SimFileSystem& files_;
  const SimDisk::Node node_;
  const std::string path_;
};

}  // namespace

SimFileSystem::SimFileSystem() {
  disk_.make(SimDisk::kRoot, std::filesystem::path(kVolume).filename().native(), FileKind::directory);
  disk_.sync_names(SimDisk::kRoot);
}

std::optional<SimDisk::Node> SimFileSystem::find(const std::filesystem::path& path) const {
  std::optional<SimDisk::Node> at = SimDisk::kRoot;
  for (const auto& component : path.relative_path()) {
    if (disk_.at(*at).kind != FileKind::directory) return std::nullopt;
    at = disk_.find(*at, component.native());
    if (!at) return std::nullopt;
  }
  return at;
}

std::unique_ptr<Directory> SimFileSystem::open_directory(const std::filesystem::path& path, bool create) {
  SimDisk::Node at = SimDisk::kRoot;
  std::vector<std::pair<SimDisk::Node, std::filesystem::path>> parents;
  std::filesystem::path so_far = "/";
  for (const auto& component : path.relative_path()) {
    if (disk_.at(at).kind != FileKind::directory) fail("open", path.native(), ENOTDIR);
    parents.emplace_back(at, so_far);
    auto next = disk_.find(at, component.native());
    if (!next) {
      if (!create) return nullptr;
      next = disk_.make(at, component.native(), FileKind::directory);
      changed("mkdir", so_far.native(), component.native());
    }
    so_far /= component;
    at = *next;
  }
  if (disk_.at(at).kind != FileKind::directory) fail("open", path.native(), ENOTDIR);
  if (create) {
    for (auto parent = parents.rbegin(); parent != parents.rend(); ++parent) {
      disk_.sync_names(parent->first);
      changed("fsync", parent->second.native());
    }
  }
  return std::make_unique<SimDirectory>(*this, at, path.native());
}

std::unique_ptr<File> SimFileSystem::open_file(const std::filesystem::path& path, OpenMode mode) {
  return open_beneath_parent(*this, path, mode);
}

bool SimFileSystem::on_root_file_system(const std::filesystem::path& path) const {
  return !path.native().starts_with(kVolume);
}

void SimFileSystem::changed(const char* operation, const std::string& path, std::string_view name,
                            std::string_view to) const {
  if (!hook_) return;
  hook_([&] {
    std::string text = std::string(operation) + " " + path;
    if (!name.empty()) text += "/" + std::string(name);
    if (!to.empty()) text += " -> " + std::string(to);
    return text;
  });
}

std::uint64_t content_hash(const File& file) { return dynamic_cast<const SimFile&>(file).content_hash(); }

}  // namespace holdfast::test
