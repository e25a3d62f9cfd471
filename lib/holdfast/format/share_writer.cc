#include "holdfast/format/share_writer.h"

#include <algorithm>

#include "holdfast/base/error.h"
#include "holdfast/format/internal/block_writer.h"
#include "holdfast/format/internal/piece_hasher.h"
#include "holdfast/format/internal/throttle.h"
#include "holdfast/format/internal/workers.h"
#include "holdfast/format/seal.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using internal::BlockWriter;
using internal::PieceHasher;
using internal::Stopped;
using internal::Throttle;

const Share& share_of(const Shares& shares, int rank) {
  if (rank < 0 || rank >= shares.world_size()) throw Error("no share for rank " + std::to_string(rank));
  return shares.ranks[static_cast<std::size_t>(rank)];
}

// Combines the digests of the pieces into one digest per tensor.
std::vector<Digest> tensor_digests(const Shares& shares, std::span<const Digest> pieces,
                                   std::size_t tensors) {
  std::vector<Digest> digests;
  digests.reserve(tensors);
  std::size_t at = 0;
  for (std::size_t i = 0; i < tensors; ++i) {
    std::size_t count = 0;
    while (at + count < shares.pieces.size() && shares.pieces[at + count].tensor == i) ++count;
    digests.push_back(combine_digests(pieces.subspan(at, count)));
    at += count;
  }
  return digests;
}

}  // namespace

std::shared_ptr<Arena> make_share_image(const FilePlan& plan, const Share& share) {
  // Only the stretches in this rank's blocks: other ranks write the others.
  auto arena = std::make_shared<Arena>(plan.layout->length());
  auto stretch = plan.stretches.begin();
  for (const ByteRange& blocks : share.writes) {
    while (stretch != plan.stretches.end() && stretch->offset + stretch->bytes.size() <= blocks.begin) {
      ++stretch;
    }
    for (auto next = stretch; next != plan.stretches.end() && next->offset < blocks.end; ++next) {
      // A stretch may begin or end in blocks of other ranks.
      const std::uint64_t begin = std::max(next->offset, blocks.begin);
      const std::uint64_t end = std::min<std::uint64_t>(next->offset + next->bytes.size(), blocks.end);
      std::copy_n(next->bytes.begin() + static_cast<std::ptrdiff_t>(begin - next->offset), end - begin,
                  arena->bytes().begin() + static_cast<std::ptrdiff_t>(begin));
    }
  }
  return arena;
}

WrittenShare write_share(File& file, const Snapshot& snapshot, const Shares& shares, int rank,
                         const ImageWriterOptions& options, bool check_finite) {
  Throttle throttle(options.write_limit, *options.clock, options.limit_lifted);
  PieceHasher hasher(snapshot, share_of(shares, rank).pieces, check_finite, options.recheck);
  const auto& writes = share_of(shares, rank).writes;
  BlockWriter blocks(file, std::as_const(*snapshot.arena).padded(), writes, throttle);
  internal::run_beside(
      std::max(options.threads, 1),
      [&](const Stopped& stopped) {
        blocks.work(stopped);
        hasher.work(stopped);
      },
      [&](const Stopped& stopped) { hasher.work(stopped); });
  return {hasher.digests(), hasher.not_finite()};
}

WrittenShare hash_share(const Snapshot& snapshot, const Shares& shares, int rank,
                        const ImageWriterOptions& options, bool check_finite) {
  PieceHasher hasher(snapshot, share_of(shares, rank).pieces, check_finite, options.recheck);
  internal::run_workers(std::max(options.threads, 1), [&](const Stopped& stopped) { hasher.work(stopped); });
  return {hasher.digests(), hasher.not_finite()};
}

std::vector<Digest> complete_image(File& file, Snapshot& snapshot, const FilePlan& plan, const Shares& shares,
                                   std::span<const Digest> pieces, std::optional<std::size_t> not_finite,
                                   const ImageWriterOptions& options) {
  // These are the steps of write_image(), with the pieces of all ranks instead of own ones.
  if (pieces.size() != shares.pieces.size()) throw Error("a shared file needs the digest of every piece");
  const std::span<const std::byte> image = std::as_const(*snapshot.arena).padded();
  const Stopped never{false};
  Throttle throttle(options.write_limit, *options.clock, options.limit_lifted);
  // The late blocks hold bytes of several ranks, which have arrived by now.
  BlockWriter late(file, image, shares.late, throttle);
  late.work(never);

  std::vector<Digest> digests = tensor_digests(shares, pieces, plan.layout->tensors().size());
  if (options.before_seal) options.before_seal(snapshot, not_finite);
  seal(snapshot, plan, digests);
  // Last, as in write_image(): until then the file has no valid header, whatever the ranks have written.
  const ByteRange front{0, plan.head};
  BlockWriter head(file, image, std::span(&front, 1), throttle);
  head.work(never);
  // The last block was written whole, as in write_image().
  if (snapshot.arena->capacity() != snapshot.arena->size()) file.truncate(snapshot.arena->size());
  return digests;
}

}}  // namespace holdfast::v0_2
