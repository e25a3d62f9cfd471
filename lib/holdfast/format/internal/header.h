// The file's first 4096 bytes; docs/file_format.md#header lists the fields.
//
// Errors: return values. Threads: pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>

#include "holdfast/format/layout.h"
#include "holdfast/format/reader.h"
#include "holdfast/snapshot/digest.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

struct Header {
  std::uint32_t format_version = kFormatVersion;
  std::uint32_t lowest_reader = kLowestReaderVersion;
  std::uint64_t file_length = 0;
  std::uint64_t user_block = 0;
  std::uint64_t index_length = 0;
  Digest index_digest;
};

// Requires 4096 bytes, and writes all of them.
void write_header(std::span<std::byte> bytes, const Header& header);
// Requires 4096 bytes. Checks the digest first, then the versions, then the fields against `file_size`. So
// nothing that follows can request more memory than the file has bytes.
std::variant<Header, Rejection> read_header(std::span<const std::byte> bytes, std::uint64_t file_size);

}}}  // namespace holdfast::v0_2::internal
