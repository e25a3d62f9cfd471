#include "support/bad_page_file_system.h"

#include <utility>

namespace holdfast::test {
namespace {

using PagePtr = std::shared_ptr<BadPageFileSystem::Page>;

class BadPageFile final : public File {
 public:
  BadPageFile(std::unique_ptr<File> inner, PagePtr page) : inner_(std::move(inner)), page_(std::move(page)) {}

  std::uint64_t size() const override { return inner_->size(); }
  std::size_t read_at(std::span<std::byte> buffer, std::uint64_t offset) const override {
    const std::size_t count = inner_->read_at(buffer, offset);
    if (page_->offset >= offset && page_->offset < offset + count) {
      buffer[page_->offset - offset] ^= std::byte{1};
      ++page_->reads;
    }
    return count;
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
  PagePtr page_;
};

class BadPageDirectory final : public Directory {
 public:
  BadPageDirectory(std::unique_ptr<Directory> inner, PagePtr page)
      : inner_(std::move(inner)), page_(std::move(page)) {}

  static std::unique_ptr<Directory> around(std::unique_ptr<Directory> inner, const PagePtr& page) {
    return inner ? std::make_unique<BadPageDirectory>(std::move(inner), page) : nullptr;
  }

  const std::string& path() const override { return inner_->path(); }
  std::unique_ptr<File> open(std::string_view name, OpenMode mode) override {
    auto file = inner_->open(name, mode);
    if (!file || name != page_->name) return file;
    return std::make_unique<BadPageFile>(std::move(file), page_);
  }
  std::unique_ptr<Directory> open_directory(std::string_view name, bool create) override {
    return around(inner_->open_directory(name, create), page_);
  }
  std::optional<FileStatus> status(std::string_view name) const override { return inner_->status(name); }
  std::vector<DirectoryEntry> list() const override { return inner_->list(); }
  bool rename_new(std::string_view from, std::string_view to) override {
    return inner_->rename_new(from, to);
  }
  void rename_over(std::string_view from, std::string_view to) override { inner_->rename_over(from, to); }
  bool unlink(std::string_view name) override { return inner_->unlink(name); }
  void sync() override { inner_->sync(); }

 private:
  std::unique_ptr<Directory> inner_;
  PagePtr page_;
};

}  // namespace

BadPageFileSystem::BadPageFileSystem(FileSystem& inner) : inner_(inner), page_(std::make_shared<Page>()) {}

void BadPageFileSystem::spoil(const std::string& name, std::uint64_t offset) {
  page_->name = name;
  page_->offset = offset;
}

std::unique_ptr<Directory> BadPageFileSystem::open_directory(const std::filesystem::path& path, bool create) {
  return BadPageDirectory::around(inner_.open_directory(path, create), page_);
}

std::unique_ptr<File> BadPageFileSystem::open_file(const std::filesystem::path& path, OpenMode mode) {
  auto file = inner_.open_file(path, mode);
  if (!file || path.filename() != page_->name) return file;
  return std::make_unique<BadPageFile>(std::move(file), page_);
}

bool BadPageFileSystem::is_mount_point(const std::filesystem::path& path) const {
  return inner_.is_mount_point(path);
}

bool BadPageFileSystem::on_root_file_system(const std::filesystem::path& path) const {
  return inner_.on_root_file_system(path);
}

}  // namespace holdfast::test
