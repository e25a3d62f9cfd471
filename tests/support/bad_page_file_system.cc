#include "support/bad_page_file_system.h"

#include <utility>

#include "support/forwarding.h"

namespace holdfast::test {
namespace {

using PagePtr = std::shared_ptr<BadPageFileSystem::Page>;

class BadPageFile final : public ForwardingFile {
 public:
  BadPageFile(std::unique_ptr<File> inner, PagePtr page)
      : ForwardingFile(std::move(inner)), page_(std::move(page)) {}

  std::size_t read_at(std::span<std::byte> buffer, std::uint64_t offset) const override {
    const std::size_t count = ForwardingFile::read_at(buffer, offset);
    if (page_->offset >= offset && page_->offset < offset + count) {
      buffer[page_->offset - offset] ^= std::byte{1};
      ++page_->reads;
    }
    return count;
  }

 private:
  PagePtr page_;
};

class BadPageDirectory final : public ForwardingDirectory {
 public:
  BadPageDirectory(std::unique_ptr<Directory> inner, PagePtr page)
      : ForwardingDirectory(std::move(inner)), page_(std::move(page)) {}

  static std::unique_ptr<Directory> around(std::unique_ptr<Directory> inner, const PagePtr& page) {
    return inner ? std::make_unique<BadPageDirectory>(std::move(inner), page) : nullptr;
  }

  std::unique_ptr<File> open(std::string_view name, OpenMode mode) override {
    auto file = ForwardingDirectory::open(name, mode);
    if (!file || name != page_->name) return file;
    return std::make_unique<BadPageFile>(std::move(file), page_);
  }
  std::unique_ptr<Directory> open_directory(std::string_view name, bool create) override {
    return around(ForwardingDirectory::open_directory(name, create), page_);
  }

 private:
  PagePtr page_;
};

}  // namespace

BadPageFileSystem::BadPageFileSystem(FileSystem& inner)
    : ForwardingFileSystem(inner), page_(std::make_shared<Page>()) {}

void BadPageFileSystem::spoil(const std::string& name, std::uint64_t offset) {
  page_->name = name;
  page_->offset = offset;
}

std::unique_ptr<Directory> BadPageFileSystem::open_directory(const std::filesystem::path& path, bool create) {
  return BadPageDirectory::around(ForwardingFileSystem::open_directory(path, create), page_);
}

std::unique_ptr<File> BadPageFileSystem::open_file(const std::filesystem::path& path, OpenMode mode) {
  auto file = ForwardingFileSystem::open_file(path, mode);
  if (!file || path.filename() != page_->name) return file;
  return std::make_unique<BadPageFile>(std::move(file), page_);
}

}  // namespace holdfast::test
