// Writes a safetensors file (safetensors.h) from its first byte to its last, without ever holding all of it.
// Tensors lie in the order of the format's own library (wide elements first, then by name), so the same
// tensors make the same bytes there and here.
//
//   SafetensorsWriter writer(file, tensors, {{"format", "pt"}});
//   for (std::size_t tensor : writer.order()) …next(bytes of it, at most 8 MiB at a time)…
//   writer.finish();
//   file.sync(); …
//
// Requires: names are keys, any UTF-8; next() asks for exactly the tensors' bytes in order().
// Errors: RefusedError for what the format cannot hold (complex128, the key "__metadata__", two equal keys, a
// header over 100 MB); IoError. Error (a defect) when finish() comes before the last byte.
// Threads: one. Durability: none of its own; the caller syncs the file. Memory: the header and 16 MiB.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "holdfast/io/file_system.h"
#include "holdfast/snapshot/arena.h"
#include "holdfast/snapshot/tensor_spec.h"

namespace holdfast::inline v1 {

class SafetensorsWriter {
 public:
  // Reserves the room and writes the header. `file` is new and empty.
  SafetensorsWriter(File& file, std::span<const TensorSpec> tensors,
                    const std::map<std::string, std::string>& metadata = {});

  // Which of the tensors comes first, which next, …
  const std::vector<std::size_t>& order() const { return order_; }
  std::uint64_t file_length() const { return length_; }
  // Where the next `bytes` bytes go (at most kTransferBlock). To be filled before the next call of anything.
  std::span<std::byte> next(std::uint64_t bytes);
  void finish();

 private:
  void flush();

  File& file_;
  std::vector<std::size_t> order_;
  Arena buffer_;
  std::uint64_t filled_ = 0;   // of the buffer
  std::uint64_t written_ = 0;  // of the file
  std::uint64_t length_ = 0;
};

}  // namespace holdfast::inline v1
