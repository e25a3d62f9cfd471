// Writes ranges of an image in blocks of up to 8 MiB on any number of threads. No block has bytes of two
// ranges.
//
// Requires ranges of whole blocks of 4096 that outlive this object.
// Errors: IoError. Threads: work() on several at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/format/internal/throttle.h"
#include "holdfast/format/shares.h"
#include "holdfast/io/file_system.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class BlockWriter {
 public:
  BlockWriter(File& file, std::span<const std::byte> image, std::span<const ByteRange> ranges,
              Throttle& throttle);
  // Writes blocks until none is left.
  void work(const Stopped& stopped);

 private:
  File& file_;
  std::span<const std::byte> image_;
  std::span<const ByteRange> ranges_;
  std::uint64_t block_;
  std::vector<std::uint64_t> first_;  // number of each range's first block; the last entry is the total
  Throttle& throttle_;
  std::atomic<std::uint64_t> next_{0};
};

}}}  // namespace holdfast::v0_2::internal
