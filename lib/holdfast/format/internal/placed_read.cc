#include "holdfast/format/internal/placed_read.h"

#include <algorithm>
#include <atomic>

#include "holdfast/format/internal/workers.h"
#include "holdfast/format/layout.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

struct Block {
  std::uint64_t begin;  // in the file
  std::uint64_t end;
  std::uint64_t image;
  std::size_t first_piece;
  std::size_t last_piece;  // one past the last piece with bytes in this block
};

std::vector<Block> blocks_of(const std::vector<Extent>& extents, const std::vector<Piece>& pieces) {
  std::vector<Block> blocks;
  std::size_t piece = 0;
  for (const Extent& extent : extents) {
    for (std::uint64_t at = extent.begin; at < extent.end; at += kTransferBlock) {
      Block block{at, std::min(extent.end, at + kTransferBlock), extent.image + (at - extent.begin), 0, 0};
      // Pieces and blocks are both in file order, so one pass over each is enough.
      while (piece < pieces.size() && pieces[piece].offset + pieces[piece].length <= block.begin) ++piece;
      block.first_piece = piece;
      block.last_piece = piece;
      while (block.last_piece < pieces.size() && pieces[block.last_piece].offset < block.end) {
        ++block.last_piece;
      }
      blocks.push_back(block);
    }
  }
  return blocks;
}

}  // namespace

std::vector<Extent> extents_of(const std::vector<Segment>& segments) {
  std::vector<Extent> extents;
  std::uint64_t image = 0;
  for (const Segment& segment : segments) {
    // Whole blocks, as O_DIRECT reads them; neighbours that share a block become one extent.
    const std::uint64_t begin = round_down(segment.offset);
    const std::uint64_t end = round_up(segment.offset + segment.length);
    if (extents.empty() || begin > extents.back().end) {
      extents.push_back({begin, begin, image});
    }
    // Blocks that the extent has already take no place again.
    image += end - std::min(end, extents.back().end);
    extents.back().end = std::max(end, extents.back().end);
  }
  return extents;
}

std::uint64_t place_of(const std::vector<Extent>& extents, std::uint64_t offset) {
  const auto behind =
      std::upper_bound(extents.begin(), extents.end(), offset,
                       [](std::uint64_t at, const Extent& extent) { return at < extent.begin; });
  const Extent& extent = *(behind - 1);
  return extent.image + (offset - extent.begin);
}

std::optional<Rejection> read_segments(const File& file, const CheckpointIndex& index,
                                       const std::vector<Segment>& segments,
                                       const std::vector<Extent>& extents, std::span<std::byte> image,
                                       ReadMode mode, int threads) {
  mode = resolved(mode, index.file_length);
  const std::vector<Piece> pieces = pieces_of(segments);
  const std::vector<Block> blocks = blocks_of(extents, pieces);
  // Number of blocks that each piece still waits for. The thread that reads the last one hashes the piece.
  std::vector<std::atomic<std::uint32_t>> missing(pieces.size());
  for (const Block& block : blocks) {
    for (std::size_t p = block.first_piece; p < block.last_piece; ++p) {
      missing[p].fetch_add(1, std::memory_order_relaxed);  // no reader has started yet
    }
  }
  std::vector<Digest> digests(pieces.size());
  std::atomic<std::size_t> next{0};
  std::atomic<bool> short_read{false};

  run_workers(threads_for(threads, blocks.size()), [&](const Stopped& stopped) {
    for (std::size_t i = next++; i < blocks.size() && !stopped && !short_read; i = next++) {
      const Block& block = blocks[i];
      const std::size_t got =
          read_bytes(file, mode, image.subspan(block.image, block.end - block.begin), block.begin);
      // The file's last block ends early, and only there less is right.
      if (got < std::min(block.end, index.file_length) - block.begin) {
        short_read = true;
        return;
      }
      for (std::size_t p = block.first_piece; p < block.last_piece; ++p) {
        // The last decrement sees all other threads' reads (acquire), and publishes its own (release).
        if (missing[p].fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
        // An extent is contiguous in memory, so the piece's other blocks are adjacent to this one.
        const std::uint64_t at = block.image + pieces[p].offset - block.begin;
        digests[p] = digest_of(image.subspan(at, pieces[p].length));
      }
    }
  });
  if (short_read) return damaged("the file became shorter while it was read");
  return compare(index, segments, digests);
}

}}}  // namespace holdfast::v0_2::internal
