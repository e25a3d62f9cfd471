// Writes a zip archive from first to last byte: stored entries, zip64 throughout, data of each entry at a
// multiple of 64, as PyTorch's own archives have it (so that torch.load(mmap=True) gets aligned tensors).
//
//   ZipWriter zip(file, {{"archive/data.pkl", pickle.size()}, …});
//   …next(bytes of the entries in their order, at most 8 MiB at a time, none across two entries)…
//   zip.finish();
//
// Requires unique names without NUL, shorter than 32 KiB; a new and empty file.
// Errors: IoError; Error (a defect) for more or fewer bytes than the entries have.
// Threads: one. Durability: none; the caller syncs. Memory: 16 MiB.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "holdfast/io/file_system.h"
#include "holdfast/snapshot/arena.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

struct NewZipEntry {
  std::string name;
  std::uint64_t size = 0;
};

class ZipWriter {
 public:
  // Reserves the space.
  ZipWriter(File& file, std::vector<NewZipEntry> entries);

  std::uint64_t file_length() const { return length_; }
  // Buffer for the next `bytes` bytes (at most kTransferBlock). Fill it before the next call of any method.
  std::span<std::byte> next(std::uint64_t bytes);
  // Writes bytes in memory, of any size.
  void write(std::span<const std::byte> bytes);
  void finish();

 private:
  struct Entry {
    NewZipEntry asked;
    std::uint64_t header = 0;  // offsets in the file
    std::uint64_t data = 0;
    std::uint32_t crc = 0;
  };
  void flush();
  void end_full_entries();
  std::vector<std::byte> directory() const;

  File& file_;
  std::vector<Entry> entries_;
  Arena buffer_;
  std::uint64_t directory_at_ = 0;
  std::uint64_t length_ = 0;
  std::size_t current_ = 0;    // entry that is being written
  std::uint64_t written_ = 0;  // of its data, without the buffer
  std::uint64_t filled_ = 0;   // of the buffer
};

}}}  // namespace holdfast::v0_2::internal
