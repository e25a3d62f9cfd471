#include "broken_file_system.h"

#include <utility>

#include "holdfast/base/error.h"

namespace holdfast::test::faults {
namespace {

class BrokenFile final : public File {
 public:
  BrokenFile(std::unique_ptr<File> inner, Bug bug) : inner_(std::move(inner)), bug_(bug) {}

  std::uint64_t size() const override { return inner_->size(); }
  std::size_t read_at(std::span<std::byte> buffer, std::uint64_t offset) const override {
    return inner_->read_at(buffer, offset);
  }
  std::size_t read_uncached_at(std::span<std::byte> buffer, std::uint64_t offset) const override {
    return inner_->read_uncached_at(buffer, offset);
  }
  void write_at(std::span<const std::byte> data, std::uint64_t offset) override {
    swallowing([&] { inner_->write_at(data, offset); });
  }
  void reserve(std::uint64_t length) override { inner_->reserve(length); }
  void truncate(std::uint64_t length) override { inner_->truncate(length); }
  void sync() override {
    if (bug_ == Bug::never_syncs) return;
    try {
      inner_->sync();
    } catch (const IoError&) {
      if (bug_ != Bug::syncs_again) throw;
      inner_->sync();
    }
  }
  void close() override {
    swallowing([&] { inner_->close(); });
  }

 private:
  template <class Work>
  void swallowing(const Work& work) {
    try {
      work();
    } catch (const IoError&) {
      if (bug_ != Bug::swallows_failures) throw;
    }
  }

  std::unique_ptr<File> inner_;
  Bug bug_;
};

class BrokenDirectory final : public Directory {
 public:
  BrokenDirectory(std::unique_ptr<Directory> inner, Bug bug) : inner_(std::move(inner)), bug_(bug) {}

  static std::unique_ptr<Directory> around(std::unique_ptr<Directory> inner, Bug bug) {
    return inner ? std::make_unique<BrokenDirectory>(std::move(inner), bug) : nullptr;
  }

  const std::string& path() const override { return inner_->path(); }
  std::unique_ptr<File> open(std::string_view name, OpenMode mode) override {
    auto file = inner_->open(name, mode);
    return file ? std::make_unique<BrokenFile>(std::move(file), bug_) : nullptr;
  }
  std::unique_ptr<Directory> open_directory(std::string_view name, bool create) override {
    return around(inner_->open_directory(name, create), bug_);
  }
  std::optional<FileStatus> status(std::string_view name) const override { return inner_->status(name); }
  std::vector<DirectoryEntry> list() const override { return inner_->list(); }
  bool rename_new(std::string_view from, std::string_view to) override {
    return inner_->rename_new(from, to);
  }
  void rename_over(std::string_view from, std::string_view to) override { inner_->rename_over(from, to); }
  bool unlink(std::string_view name) override { return inner_->unlink(name); }
  void sync() override {
    if (bug_ != Bug::forgets_directories) inner_->sync();
  }

 private:
  std::unique_ptr<Directory> inner_;
  Bug bug_;
};

class BrokenFileSystem final : public FileSystem {
 public:
  BrokenFileSystem(FileSystem& inner, Bug bug) : inner_(inner), bug_(bug) {}

  std::unique_ptr<Directory> open_directory(const std::filesystem::path& path, bool create) override {
    return BrokenDirectory::around(inner_.open_directory(path, create), bug_);
  }
  std::unique_ptr<File> open_file(const std::filesystem::path& path, OpenMode mode) override {
    return std::make_unique<BrokenFile>(inner_.open_file(path, mode), bug_);
  }
  bool is_mount_point(const std::filesystem::path& path) const override {
    return inner_.is_mount_point(path);
  }
  bool on_root_file_system(const std::filesystem::path& path) const override {
    return inner_.on_root_file_system(path);
  }

 private:
  FileSystem& inner_;
  Bug bug_;
};

}  // namespace

std::unique_ptr<FileSystem> with_bug(FileSystem& inner, Bug bug) {
  return std::make_unique<BrokenFileSystem>(inner, bug);
}

}  // namespace holdfast::test::faults
