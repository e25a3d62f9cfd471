// Checkpoint files for fuzzers: whatever is put into one, header and digests can be set right again, so that
// the fuzzer gets behind them. (A digest is no signature: whoever wants to write hostile bytes can compute
// it.)
//
// Threads: free functions, pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/format/internal/header.h"
#include "holdfast/format/reader.h"

namespace holdfast::test {

// A file whose user block is the smallest that holds `index`, followed by `body`.
std::vector<std::byte> sealed_file(std::string_view index, std::span<const std::byte> body);
// The same with as many zeros as the user block has bytes.
std::vector<std::byte> sealed_file(std::string_view index);

// What the header's fields say, whether true or not. Requires a file of at least a header.
internal::Header header_of(std::span<const std::byte> file);
// Writes the header, its digest and, where the user block lies within the file, the index's digest.
void set_header(std::vector<std::byte>& file, internal::Header header);
// The index's text by the header; nullopt when the header's numbers do not fit the file.
std::optional<std::string> index_text(std::span<const std::byte> file);
// Puts another text there, header and digest in order. False when the user block is too short for it.
bool set_index_text(std::vector<std::byte>& file, std::string_view text);
// Every digest of the index as the bytes have it, as far as offsets lie within the file.
void set_digests(CheckpointIndex& index, std::span<const std::byte> file);

}  // namespace holdfast::test
