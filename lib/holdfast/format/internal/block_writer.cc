#include "holdfast/format/internal/block_writer.h"

#include <algorithm>

#include "holdfast/format/layout.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

BlockWriter::BlockWriter(File& file, std::span<const std::byte> image, std::span<const ByteRange> ranges,
                         Throttle& throttle)
    : file_(file),
      image_(image),
      ranges_(ranges),
      // Smaller blocks under a limit, so that the rate is even instead of coming in bursts.
      block_(throttle.block(kTransferBlock)),
      first_{0},
      throttle_(throttle) {
  first_.reserve(ranges.size() + 1);
  for (const ByteRange& range : ranges)
    first_.push_back(first_.back() + (range.size() + block_ - 1) / block_);
}

void BlockWriter::work(const Stopped& stopped) {
  while (!stopped) {
    // Threads take blocks one by one, so a slow write of one thread delays no other.
    const std::uint64_t number = next_++;
    if (number >= first_.back()) return;
    // The last range that starts at or before this block.
    const auto range =
        static_cast<std::size_t>(std::upper_bound(first_.begin(), first_.end(), number) - first_.begin() - 1);
    const std::uint64_t offset = ranges_[range].begin + block_ * (number - first_[range]);
    const std::uint64_t size = std::min(block_, ranges_[range].end - offset);
    throttle_.take(size, stopped);
    if (stopped) return;
    file_.write_at(image_.subspan(offset, size), offset);
  }
}

}}}  // namespace holdfast::v0_2::internal
