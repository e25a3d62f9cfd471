// A small temporary file for libhdf5, which wants a path (a real one: not memfd's). In memory (/dev/shm), or
// where that cannot be used or is full, in $TMPDIR.
//
// Errors: IoError when neither works.
// Threads: one.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace holdfast::inline v1::internal {

class ScratchFile {
 public:
  // With room for that many bytes; empty.
  explicit ScratchFile(std::uint64_t room);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  const std::string& path() const { return path_; }
  // Once libhdf5 has opened it: from now on even a killed process leaves nothing behind.
  void drop_name();
  std::uint64_t size() const;
  void read(std::span<std::byte> to, std::uint64_t offset) const;

 private:
  int descriptor_ = -1;
  std::string path_;
  bool named_ = false;
};

}  // namespace holdfast::inline v1::internal
