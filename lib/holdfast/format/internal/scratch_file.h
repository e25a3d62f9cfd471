// A small file without a name, for libhdf5, which wants a path. In memory (memfd) where the kernel allows it,
// else in $TMPDIR; gone with the process in either case.
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
  ScratchFile();
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  const std::string& path() const { return path_; }  // opens this file, while it lives
  std::uint64_t size() const;
  void read(std::span<std::byte> to, std::uint64_t offset) const;

 private:
  int descriptor_ = -1;
  std::string path_;
  bool named_ = false;
};

}  // namespace holdfast::inline v1::internal
