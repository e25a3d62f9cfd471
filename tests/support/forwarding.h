// Files and directories that forward every call. A wrapper around a file system overrides only what it
// changes.
//
// Threads: as the inner one.
#pragma once

#include <memory>
#include <utility>

#include "holdfast/io/file_system.h"

namespace holdfast::test {

class ForwardingFile : public File {
 public:
  explicit ForwardingFile(std::unique_ptr<File> inner) : inner_(std::move(inner)) {}

  std::uint64_t size() const override { return inner_->size(); }
  std::size_t read_at(std::span<std::byte> buffer, std::uint64_t offset) const override {
    return inner_->read_at(buffer, offset);
  }
  std::size_t read_uncached_at(std::span<std::byte> buffer, std::uint64_t offset) const override {
    return inner_->read_uncached_at(buffer, offset);
  }
  void write_at(std::span<const std::byte> data, std::uint64_t offset) override {
    inner_->write_at(data, offset);
  }
  void reserve(std::uint64_t length) override { inner_->reserve(length); }
  void truncate(std::uint64_t length) override { inner_->truncate(length); }
  void sync() override { inner_->sync(); }
  void close() override { inner_->close(); }

 private:
  std::unique_ptr<File> inner_;
};

class ForwardingDirectory : public Directory {
 public:
  explicit ForwardingDirectory(std::unique_ptr<Directory> inner) : inner_(std::move(inner)) {}

  const std::string& path() const override { return inner_->path(); }
  std::unique_ptr<File> open(std::string_view name, OpenMode mode) override {
    return inner_->open(name, mode);
  }
  std::unique_ptr<Directory> open_directory(std::string_view name, bool create) override {
    return inner_->open_directory(name, create);
  }
  FileStatus own_status() const override { return inner_->own_status(); }
  std::optional<FileStatus> status(std::string_view name) const override { return inner_->status(name); }
  std::vector<DirectoryEntry> list() const override { return inner_->list(); }
  bool rename_new(std::string_view from, std::string_view to) override {
    return inner_->rename_new(from, to);
  }
  void rename_over(std::string_view from, std::string_view to) override { inner_->rename_over(from, to); }
  bool unlink(std::string_view name) override { return inner_->unlink(name); }
  bool unlink_lazily(std::string_view name, std::unique_ptr<HeldBlocks>& blocks) override {
    return inner_->unlink_lazily(name, blocks);
  }
  void sync() override { inner_->sync(); }

 private:
  std::unique_ptr<Directory> inner_;
};

// The inner file system must outlive this one.
class ForwardingFileSystem : public FileSystem {
 public:
  explicit ForwardingFileSystem(FileSystem& inner) : inner_(inner) {}

  std::unique_ptr<Directory> open_directory(const std::filesystem::path& path, bool create) override {
    return inner_.open_directory(path, create);
  }
  std::unique_ptr<File> open_file(const std::filesystem::path& path, OpenMode mode) override {
    return inner_.open_file(path, mode);
  }
  bool is_mount_point(const std::filesystem::path& path) const override {
    return inner_.is_mount_point(path);
  }
  bool on_root_file_system(const std::filesystem::path& path) const override {
    return inner_.on_root_file_system(path);
  }

 private:
  FileSystem& inner_;
};

}  // namespace holdfast::test
