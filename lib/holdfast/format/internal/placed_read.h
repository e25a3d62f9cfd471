// Reads segments of a file into memory that mirrors the file: blocks of 4096 bytes lie in memory as in the
// file. So O_DIRECT puts them there without a copy and without the page cache. Neighbours share a read; one
// block is hashed while the next is read.
//
// Errors: IoError. Threads: read_segments starts its own and joins them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "holdfast/format/internal/segments.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// Blocks of the file and their place in the image. All values are multiples of 4096, except the end of the
// file's last block.
struct Extent {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t image = 0;
};

// The blocks that contain these segments (ascending, not overlapping), placed one after the other.
std::vector<Extent> extents_of(const std::vector<Segment>& segments);
// The place in the image of a byte of one of the segments.
std::uint64_t place_of(const std::vector<Extent>& extents, std::uint64_t offset);

// Reads the extents in blocks of up to 8 MiB, each byte once, and compares the segments' digests. Requires an
// image that begins at a multiple of 4096 and reaches to the last extent's end. Returns the names of what
// differs; the image then holds the bytes that were read. Throws IoError.
std::optional<Rejection> read_segments(const File& file, const CheckpointIndex& index,
                                       const std::vector<Segment>& segments,
                                       const std::vector<Extent>& extents, std::span<std::byte> image,
                                       ReadMode mode, int threads);

}}}  // namespace holdfast::v0_2::internal
