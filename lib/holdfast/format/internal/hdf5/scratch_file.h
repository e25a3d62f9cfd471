// A small temporary file for libhdf5, which needs a real path (not memfd's). It lies in memory (/dev/shm), or
// in $TMPDIR if /dev/shm is missing or full.
//
// Errors: IoError if neither works.
// Threads: one.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace holdfast { inline namespace v0_2 { namespace internal {

class ScratchFile {
 public:
  // An empty file with space for `room` bytes.
  explicit ScratchFile(std::uint64_t room);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  const std::string& path() const { return path_; }
  // Call it once libhdf5 has opened the file: afterwards even a killed process leaves nothing behind.
  void drop_name();
  std::uint64_t size() const;
  void read(std::span<std::byte> to, std::uint64_t offset) const;

 private:
  int descriptor_ = -1;
  std::string path_;
  bool named_ = false;
};

}}}  // namespace holdfast::v0_2::internal
