#include "broken_file_system.h"

#include <utility>

#include "holdfast/base/error.h"
#include "support/forwarding.h"

namespace holdfast::test::faults {
namespace {

class BrokenFile final : public ForwardingFile {
 public:
  BrokenFile(std::unique_ptr<File> inner, Bug bug) : ForwardingFile(std::move(inner)), bug_(bug) {}

  void write_at(std::span<const std::byte> data, std::uint64_t offset) override {
    swallowing([&] { ForwardingFile::write_at(data, offset); });
  }
  void sync() override {
    if (bug_ == Bug::never_syncs) return;
    try {
      ForwardingFile::sync();
    } catch (const IoError&) {
      if (bug_ != Bug::syncs_again) throw;
      ForwardingFile::sync();
    }
  }
  void close() override {
    swallowing([&] { ForwardingFile::close(); });
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

  Bug bug_;
};

class BrokenDirectory final : public ForwardingDirectory {
 public:
  BrokenDirectory(std::unique_ptr<Directory> inner, Bug bug)
      : ForwardingDirectory(std::move(inner)), bug_(bug) {}

  static std::unique_ptr<Directory> around(std::unique_ptr<Directory> inner, Bug bug) {
    return inner ? std::make_unique<BrokenDirectory>(std::move(inner), bug) : nullptr;
  }

  std::unique_ptr<File> open(std::string_view name, OpenMode mode) override {
    auto file = ForwardingDirectory::open(name, mode);
    return file ? std::make_unique<BrokenFile>(std::move(file), bug_) : nullptr;
  }
  std::unique_ptr<Directory> open_directory(std::string_view name, bool create) override {
    return around(ForwardingDirectory::open_directory(name, create), bug_);
  }
  void sync() override {
    if (bug_ != Bug::forgets_directories) ForwardingDirectory::sync();
  }

 private:
  Bug bug_;
};

class BrokenFileSystem final : public ForwardingFileSystem {
 public:
  BrokenFileSystem(FileSystem& inner, Bug bug) : ForwardingFileSystem(inner), bug_(bug) {}

  std::unique_ptr<Directory> open_directory(const std::filesystem::path& path, bool create) override {
    return BrokenDirectory::around(ForwardingFileSystem::open_directory(path, create), bug_);
  }
  std::unique_ptr<File> open_file(const std::filesystem::path& path, OpenMode mode) override {
    return std::make_unique<BrokenFile>(ForwardingFileSystem::open_file(path, mode), bug_);
  }

 private:
  Bug bug_;
};

}  // namespace

std::unique_ptr<FileSystem> with_bug(FileSystem& inner, Bug bug) {
  return std::make_unique<BrokenFileSystem>(inner, bug);
}

}  // namespace holdfast::test::faults
