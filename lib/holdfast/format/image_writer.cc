#include "holdfast/format/image_writer.h"

#include <algorithm>
#include <atomic>

#include "holdfast/format/internal/piece_hasher.h"
#include "holdfast/format/internal/throttle.h"
#include "holdfast/format/internal/workers.h"
#include "holdfast/format/seal.h"

namespace holdfast::inline v1 {
namespace {

using internal::Stopped;
using internal::Throttle;

// Blocks of a range of the image, taken by any number of threads. The head's blocks and the others are two
// ranges, so no block holds bytes of both.
class BlockWriter {
 public:
  BlockWriter(File& file, std::span<const std::byte> image, std::uint64_t begin, std::uint64_t end,
              Throttle& throttle)
      : file_(file),
        image_(image),
        begin_(begin),
        end_(end),
        block_(throttle.block(kTransferBlock)),
        throttle_(throttle) {}

  void work(const Stopped& stopped) {
    while (!stopped) {
      const std::uint64_t offset = begin_ + block_ * next_++;
      if (offset >= end_) return;
      const std::uint64_t size = std::min(block_, end_ - offset);
      throttle_.take(size, stopped);
      if (stopped) return;
      file_.write_at(image_.subspan(offset, size), offset);
    }
  }

 private:
  File& file_;
  std::span<const std::byte> image_;
  std::uint64_t begin_;
  std::uint64_t end_;
  std::uint64_t block_;
  Throttle& throttle_;
  std::atomic<std::uint64_t> next_{0};
};

}  // namespace

std::vector<Digest> write_image(File& file, Snapshot& snapshot, const FilePlan& plan,
                                const ImageWriterOptions& options) {
  const std::span<const std::byte> image = snapshot.arena->padded();
  Throttle throttle(options.write_limit, *options.clock, options.hurry);
  internal::PieceHasher hasher(snapshot, options.before_seal != nullptr);
  BlockWriter body(file, image, plan.head, image.size(), throttle);
  internal::run_beside(
      std::max(options.threads, 1),
      [&](const Stopped& stopped) {
        body.work(stopped);
        hasher.work(stopped);
      },
      [&](const Stopped& stopped) { hasher.work(stopped); });

  std::vector<Digest> digests = hasher.finish();
  if (options.before_seal) options.before_seal(snapshot, hasher.finite());
  seal(snapshot, plan, digests);
  BlockWriter head(file, image, 0, plan.head, throttle);
  head.work(Stopped{false});
  if (snapshot.arena->capacity() != snapshot.arena->size()) file.truncate(snapshot.arena->size());
  return digests;
}

std::vector<Digest> write_image(File& file, Snapshot& snapshot, const FilePlan& plan, int threads) {
  return write_image(file, snapshot, plan, ImageWriterOptions{.threads = threads});
}

}  // namespace holdfast::inline v1
