#include "holdfast/format/image_writer.h"

#include <algorithm>
#include <atomic>

#include "holdfast/format/internal/piece_hasher.h"
#include "holdfast/format/internal/workers.h"
#include "holdfast/format/seal.h"

namespace holdfast::inline v1 {
namespace {

using internal::Stopped;

// Blocks of a range of the image, taken by any number of threads. The head's blocks and the others are two
// ranges, so no block holds bytes of both.
class BlockWriter {
 public:
  BlockWriter(File& file, std::span<const std::byte> image, std::uint64_t begin, std::uint64_t end)
      : file_(file), image_(image), begin_(begin), end_(end) {}

  void work(const Stopped& stopped) {
    while (!stopped) {
      const std::uint64_t offset = begin_ + kTransferBlock * next_++;
      if (offset >= end_) return;
      file_.write_at(image_.subspan(offset, std::min(kTransferBlock, end_ - offset)), offset);
    }
  }

 private:
  File& file_;
  std::span<const std::byte> image_;
  std::uint64_t begin_;
  std::uint64_t end_;
  std::atomic<std::uint64_t> next_{0};
};

}  // namespace

std::vector<Digest> write_image(File& file, Snapshot& snapshot, const FilePlan& plan, int threads) {
  const std::span<const std::byte> image = snapshot.arena->padded();
  internal::PieceHasher hasher(snapshot);
  BlockWriter body(file, image, plan.head, image.size());
  internal::run_beside(
      std::max(threads, 1),
      [&](const Stopped& stopped) {
        body.work(stopped);
        hasher.work(stopped);
      },
      [&](const Stopped& stopped) { hasher.work(stopped); });

  std::vector<Digest> digests = hasher.finish();
  seal(snapshot, plan, digests);
  BlockWriter head(file, image, 0, plan.head);
  head.work(Stopped{false});
  if (snapshot.arena->capacity() != snapshot.arena->size()) file.truncate(snapshot.arena->size());
  return digests;
}

}  // namespace holdfast::inline v1
