// Reads segments of a file into memory that mirrors it: file blocks of 4096 bytes lie in memory as they lie
// in the file, so that a device puts them there itself (O_DIRECT), without a copy and without a look at the
// page cache. Neighbours share a read; digests are taken while the next block is on its way.
//
// Threads: read_segments starts its own and is gone with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "holdfast/format/internal/segments.h"

namespace holdfast::inline v1::internal {

// Blocks of the file that are read, and where they lie in the image. All multiples of 4096, but for the end
// of the file's last block, beyond which there is nothing.
struct Extent {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t image = 0;
};

// The blocks that these segments (ascending, not overlapping) lie in, laid end to end.
std::vector<Extent> extents_of(const std::vector<Segment>& segments);
// Where a byte of an extent's segment lies in the image.
std::uint64_t place_of(const std::vector<Extent>& extents, std::uint64_t offset);

// Reads the extents in blocks of up to 8 MiB, each byte once, and compares the segments' digests. Requires an
// image that begins on a multiple of 4096 and reaches to the last extent's end. Returns what differs, by
// name; then the image holds what was read. IoError is thrown.
std::optional<Rejection> read_segments(const File& file, const CheckpointIndex& index,
                                       const std::vector<Segment>& segments,
                                       const std::vector<Extent>& extents, std::span<std::byte> image,
                                       ReadMode mode, int threads);

}  // namespace holdfast::inline v1::internal
