// Wraps any FileSystem and simulates a bad page in the page cache: reads see a flipped bit at one place;
// uncached reads see the right bytes.
//
// Threads: as the inner file system; call spoil() before they start. The inner one must outlive this object.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "support/forwarding.h"

namespace holdfast::test {

class BadPageFileSystem final : public ForwardingFileSystem {
 public:
  explicit BadPageFileSystem(FileSystem& inner);

  // Spoils every file of that name.
  void spoil(const std::string& name, std::uint64_t offset);
  int bad_reads() const { return page_->reads; }

  std::unique_ptr<Directory> open_directory(const std::filesystem::path& path, bool create) override;
  std::unique_ptr<File> open_file(const std::filesystem::path& path, OpenMode mode) override;

  struct Page {
    std::string name;
    std::uint64_t offset = 0;
    std::atomic<int> reads = 0;
  };

 private:
  std::shared_ptr<Page> page_;
};

}  // namespace holdfast::test
