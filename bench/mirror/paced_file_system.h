// The machine's file system with slow writes: it stands for a volume of so many MB/s. Reads stay as they are.
//
// Errors: those of the file system. Threads: as file_system.h; all writes share the limit.
#pragma once

#include <filesystem>
#include <memory>

#include "holdfast/base/mutex.h"
#include "holdfast/io/file_system.h"

namespace holdfast::bench {

// Returns from spend() when so many bytes may have been written since the last call.
class WritePace {
 public:
  explicit WritePace(double megabytes_per_second) : limit_(megabytes_per_second) {}
  void spend(std::uint64_t bytes);

 private:
  const double limit_;  // 0: none
  Mutex mutex_;
  std::int64_t free_ns_ HOLDFAST_GUARDED_BY(mutex_) = 0;
};

class PacedFileSystem final : public FileSystem {
 public:
  explicit PacedFileSystem(double megabytes_per_second) : pace_(megabytes_per_second) {}
  std::unique_ptr<Directory> open_directory(const std::filesystem::path& path, bool create) override;
  std::unique_ptr<File> open_file(const std::filesystem::path& path, OpenMode mode) override;
  bool is_mount_point(const std::filesystem::path& path) const override {
    return real().is_mount_point(path);
  }
  bool on_root_file_system(const std::filesystem::path& path) const override {
    return real().on_root_file_system(path);
  }

 private:
  WritePace pace_;
};

}  // namespace holdfast::bench
