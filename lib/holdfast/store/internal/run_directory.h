// An open run directory with its `attempts` directory. It remembers a failed fsync.
//
// Errors: IoError; RefusedError if `attempts` is a symbolic link or a file. Threads: one at a time.
// Durability: sync() covers every name in the run directory; after one failure it never succeeds again. A new
// object can sync what is named after it was opened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "holdfast/io/file_system.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class RunDirectory {
 public:
  // nullptr if the directory does not exist. Changes nothing.
  static std::unique_ptr<RunDirectory> open(FileSystem& file_system, const std::filesystem::path& path);
  // Creates what is missing, including `attempts`. The new names are durable once Attempt has claimed.
  static std::unique_ptr<RunDirectory> make(FileSystem& file_system, const std::filesystem::path& path);

  Directory& run() const { return *run_; }
  Directory* attempts() const { return attempts_.get(); }  // nullptr if it does not exist
  const std::string& path() const { return run_->path(); }
  std::string path_of(const std::string& name) const { return path() + "/" + name; }

  void sync();
  bool sound() const { return !broken_; }
  void require_sound() const;  // throws IoError with the reason of the failed fsync

 private:
  explicit RunDirectory(std::unique_ptr<Directory> run) : run_(std::move(run)) {}

  std::unique_ptr<Directory> run_;
  std::unique_ptr<Directory> attempts_;
  bool broken_ = false;
  int broken_code_ = 0;
};

// Longest claim or state that is read; real ones have less than 1 KiB. The limit bounds memory.
inline constexpr std::uint64_t kLongestRecord = 64 << 10;
// The whole content of a small file. nullopt if it is missing, longer than `limit`, or not a regular file.
std::optional<std::string> read_small(Directory& directory, const std::string& name, std::uint64_t limit);

}}}  // namespace holdfast::v0_2::internal
