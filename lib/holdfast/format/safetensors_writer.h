// Writes a safetensors file (safetensors.h) from first to last byte, without holding all of it. Tensors lie
// in the order of the format's own library, so the same tensors give the same bytes.
//
//   SafetensorsWriter writer(file, tensors, {{"format", "pt"}});
//   for (std::size_t tensor : writer.order()) …next(bytes of it, at most 8 MiB at a time)…
//   writer.finish();
//
// Requires UTF-8 names as keys, and next() for exactly the tensors' bytes in order().
// Errors: RefusedError for what the format cannot hold (complex128, the key "__metadata__", two equal keys, a
// header over 100 MB); IoError; Error (a defect) if finish() comes before the last byte.
// Threads: one. Durability: none; the caller syncs. Memory: the header and 16 MiB.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "holdfast/format/byte_types.h"
#include "holdfast/io/file_system.h"
#include "holdfast/snapshot/arena.h"
#include "holdfast/snapshot/tensor_spec.h"

namespace holdfast { inline namespace v0_2 {

class SafetensorsWriter {
 public:
  // Reserves the space and writes the header. Requires that `file` is new and empty. `types`: nothing, or one
  // for each tensor, null or the type whose bytes the tensor is.
  SafetensorsWriter(File& file, std::span<const TensorSpec> tensors,
                    const std::map<std::string, std::string>& metadata = {},
                    std::span<const ByteType* const> types = {});

  // Indices of the tensors in the order of the file.
  const std::vector<std::size_t>& order() const { return order_; }
  std::uint64_t file_length() const { return length_; }
  // Buffer for the next `bytes` bytes (at most kTransferBlock). Fill it before the next call of any method.
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

}}  // namespace holdfast::v0_2
