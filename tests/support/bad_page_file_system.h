// Put in front of any FileSystem: a page of the page cache that is bad. Reads see a flipped bit at one place;
// what is read from the device is whole.
//
// Threads: as the inner file system; spoil() before they start. Lifetime: the inner one outlives it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "holdfast/io/file_system.h"

namespace holdfast::test {

class BadPageFileSystem final : public FileSystem {
 public:
  explicit BadPageFileSystem(FileSystem& inner);

  // In every file of that name.
  void spoil(const std::string& name, std::uint64_t offset);
  int bad_reads() const { return page_->reads; }

  std::unique_ptr<Directory> open_directory(const std::filesystem::path& path, bool create) override;
  std::unique_ptr<File> open_file(const std::filesystem::path& path, OpenMode mode) override;
  bool is_mount_point(const std::filesystem::path& path) const override;
  bool on_root_file_system(const std::filesystem::path& path) const override;

  struct Page {
    std::string name;
    std::uint64_t offset = 0;
    std::atomic<int> reads = 0;
  };

 private:
  FileSystem& inner_;
  std::shared_ptr<Page> page_;
};

}  // namespace holdfast::test
