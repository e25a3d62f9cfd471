// Verifies the bytes of a checkpoint while they arrive in order, and keeps none of them. The head must be
// equal to the one of the file that it is a copy of, the rest is compared with the digests in that head. So a
// copy is verified with one pass over its own bytes, and without the body of the file.
//
//   auto bytes = ArrivingBytes::of(file, index);
//   bytes->append(block); …; bytes->is_whole();
//
// Memory: the head. Errors: IoError of the file. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "holdfast/format/reader.h"
#include "holdfast/snapshot/digest_stream.h"

namespace holdfast { inline namespace v0_2 {

class ArrivingBytes {
 public:
  // `index` is that of `file`. nullopt if the index does not cover the file, or the file has changed.
  static std::optional<ArrivingBytes> of(const File& file, const CheckpointIndex& index);

  void append(std::span<const std::byte> bytes);
  // Call once, after the last byte.
  bool is_whole();

 private:
  struct Part {  // a tensor or a stretch
    std::uint64_t end = 0;
    Digest expected = {};
  };
  ArrivingBytes() = default;
  bool append_to_head(std::span<const std::byte>& bytes);
  void append_to_part(std::span<const std::byte>& bytes);

  std::vector<std::byte> head_;
  std::vector<Part> parts_;  // in the file's order
  std::size_t part_ = 0;
  std::uint64_t part_begin_ = 0;
  std::uint64_t at_ = 0;  // bytes so far
  std::vector<Digest> pieces_;
  DigestStream piece_;
  bool same_ = true;
};

}}  // namespace holdfast::v0_2
