// Writes ranges of an image in blocks of up to 8 MiB, taken by any number of threads. No block holds bytes of
// two ranges.
//
// Requires: ranges of whole blocks of 4096, which outlive this object. Threads: work() from several at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/format/internal/throttle.h"
#include "holdfast/format/shares.h"
#include "holdfast/io/file_system.h"

namespace holdfast::inline v1::internal {

class BlockWriter {
 public:
  BlockWriter(File& file, std::span<const std::byte> image, std::span<const ByteRange> ranges,
              Throttle& throttle);
  // Takes blocks until none is left.
  void work(const Stopped& stopped);

 private:
  File& file_;
  std::span<const std::byte> image_;
  std::span<const ByteRange> ranges_;
  std::uint64_t block_;
  std::vector<std::uint64_t> first_;  // number of each range's first block, and of all
  Throttle& throttle_;
  std::atomic<std::uint64_t> next_{0};
};

}  // namespace holdfast::inline v1::internal
