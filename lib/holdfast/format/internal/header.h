// The file's first 4096 bytes; field by field in layout.h.
//
// Threads: pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>

#include "holdfast/format/layout.h"
#include "holdfast/format/reader.h"
#include "holdfast/snapshot/digest.h"

namespace holdfast::inline v1::internal {

struct Header {
  std::uint32_t format_version = kFormatVersion;
  std::uint32_t lowest_reader = kLowestReaderVersion;
  std::uint64_t file_length = 0;
  std::uint64_t user_block = 0;
  std::uint64_t index_length = 0;
  Digest index_digest;
};

// Requires: 4096 bytes. Writes all of them.
void write_header(std::span<std::byte> bytes, const Header& header);
// Requires: 4096 bytes. Digest first; then the versions; then the fields, which are checked against
// `file_size`, so that nothing past this point can ask for more memory than the file has bytes.
std::variant<Header, Rejection> read_header(std::span<const std::byte> bytes, std::uint64_t file_size);

}  // namespace holdfast::inline v1::internal
