#include "holdfast/format/image_writer.h"

#include <algorithm>

#include "holdfast/format/internal/block_writer.h"
#include "holdfast/format/internal/piece_hasher.h"
#include "holdfast/format/internal/throttle.h"
#include "holdfast/format/internal/workers.h"
#include "holdfast/format/seal.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using internal::BlockWriter;
using internal::Stopped;
using internal::Throttle;

}  // namespace

std::vector<Digest> write_image(File& file, Snapshot& snapshot, const FilePlan& plan,
                                const ImageWriterOptions& options) {
  const std::span<const std::byte> image = snapshot.arena->padded();
  // Throttling is for the volume alone; hashing is never slowed down.
  Throttle throttle(options.write_limit, *options.clock, options.limit_lifted);
  internal::PieceHasher hasher(snapshot, options.before_seal != nullptr, options.recheck);
  // Two ranges, so that no block has bytes of the head and of the body: the head must be written last.
  const ByteRange head_range{0, plan.head};
  const ByteRange body_range{plan.head, image.size()};
  BlockWriter body(file, image, std::span(&body_range, 1), throttle);
  // The disk is the bottleneck, so the writers start with it and help to hash afterwards. This thread hashes
  // from the start.
  internal::run_beside(
      std::max(options.threads, 1),
      [&](const Stopped& stopped) {
        body.work(stopped);
        hasher.work(stopped);
      },
      [&](const Stopped& stopped) { hasher.work(stopped); });

  std::vector<Digest> digests = hasher.finish();
  // After all tensors are hashed: the caller records whether they were finite, and that goes into the
  // index.
  if (options.before_seal) options.before_seal(snapshot, hasher.not_finite());
  seal(snapshot, plan, digests);
  BlockWriter head(file, image, std::span(&head_range, 1), throttle);
  head.work(Stopped{false});
  // The last block was written whole, because O_DIRECT has no shorter unit. The length is corrected here.
  if (snapshot.arena->capacity() != snapshot.arena->size()) file.truncate(snapshot.arena->size());
  return digests;
}

std::vector<Digest> write_image(File& file, Snapshot& snapshot, const FilePlan& plan, int threads) {
  return write_image(file, snapshot, plan, ImageWriterOptions{.threads = threads});
}

}}  // namespace holdfast::v0_2
