// Copies of whole files in blocks of 8 MiB that O_DIRECT accepts: aligned memory, and lengths that are
// multiples of 4096.
//
// Errors: those of the File, and of the Pace. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "holdfast/io/file_system.h"
#include "holdfast/snapshot/arena.h"

namespace holdfast { inline namespace v0_2 {

inline constexpr std::size_t kCopyBlock = 8u << 20;

// Memory of a block. On huge pages the kernel pins four pieces for a transfer, not two thousand.
class AlignedBlock {
 public:
  std::span<std::byte> bytes() { return memory_.bytes(); }

 private:
  Arena memory_{kCopyBlock};
};

// Reads `bytes` bytes from the device, not through the page cache, which belongs to the trainer. Throws
// IoError if the file is shorter.
void read_blocks(const File& file, std::uint64_t bytes, AlignedBlock& block,
                 const std::function<void(std::span<const std::byte>)>& sink);

// Writes a stream to a file that was opened with create_direct.
class BlockStream {
 public:
  explicit BlockStream(File& file) : file_(file) {}
  void append(std::span<const std::byte> bytes);
  // Writes the rest, and gives the file its length. Neither syncs nor closes.
  void finish();
  std::uint64_t length() const { return written_ + held_; }

 private:
  File& file_;
  AlignedBlock block_;
  std::size_t held_ = 0;
  std::uint64_t written_ = 0;
};

}}  // namespace holdfast::v0_2
