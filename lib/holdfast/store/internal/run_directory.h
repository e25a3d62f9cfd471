// An open run directory with its `attempts`, and the memory of a failed fsync of it.
//
// Errors: IoError; RefusedError where `attempts` is a symbolic link or a file. Threads: one at a time.
// Durability: sync() covers every name in the run directory; after one failure it never succeeds again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "holdfast/io/file_system.h"

namespace holdfast::inline v1::internal {

class RunDirectory {
 public:
  // nullptr when it does not exist. Changes nothing.
  static std::unique_ptr<RunDirectory> open(FileSystem& file_system, const std::filesystem::path& path);
  // Makes what is missing, `attempts` included; the names made are durable after Attempt::claim.
  static std::unique_ptr<RunDirectory> make(FileSystem& file_system, const std::filesystem::path& path);

  Directory& run() const { return *run_; }
  Directory* attempts() const { return attempts_.get(); }  // nullptr: there is none
  const std::string& path() const { return run_->path(); }
  std::string path_of(const std::string& name) const { return path() + "/" + name; }

  void sync();
  bool sound() const { return !broken_; }
  void require_sound() const;  // IoError with the failed fsync's reason

 private:
  explicit RunDirectory(std::unique_ptr<Directory> run) : run_(std::move(run)) {}

  std::unique_ptr<Directory> run_;
  std::unique_ptr<Directory> attempts_;
  bool broken_ = false;
  int broken_code_ = 0;
};

// All of a small file; nullopt when it is missing, longer than `limit`, or not a regular file.
std::optional<std::string> read_small(Directory& directory, const std::string& name, std::uint64_t limit);

}  // namespace holdfast::inline v1::internal
