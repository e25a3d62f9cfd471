// Collects memory copies and makes them later on any number of threads. Small and large copies are laid end
// to end and divided evenly by bytes.
//
// Requires that all sources and destinations stay valid until then, and that destinations do not overlap.
// Errors: bad_alloc of add(). Threads: add() by the owner, before the others; copy() on any thread for
// disjoint ranges; work() on any number of threads at once.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/snapshot/piece_digests.h"

namespace holdfast { inline namespace v0_2 {

class HOLDFAST_EXPORT CopyList {
 public:
  // Requires spans of equal size. Ignores empty ones.
  void add(std::span<const std::byte> from, std::span<std::byte> to);
  std::uint64_t bytes() const { return bytes_; }

  // Makes the part [begin, end) of all copies laid end to end. Requires end <= bytes().
  void copy(std::uint64_t begin, std::uint64_t end) const noexcept;
  // Copies pieces that no thread has taken until none is left. On return other threads may still copy theirs.
  void work() noexcept;
  // Copies like work(), by whole pieces, and digests them meanwhile. Requires destinations in
  // the image of `digests`.
  void work(PieceDigests& digests) noexcept;

 private:
  struct Job {
    std::uint64_t start;  // total bytes of the jobs before
    std::uint64_t bytes;
    std::byte* to;
    const std::byte* from;
  };
  const Job& job_at(std::uint64_t at) const noexcept;
  std::vector<Job> jobs_;
  std::uint64_t bytes_ = 0;
  std::atomic<std::uint64_t> taken_{0};
};

}}  // namespace holdfast::v0_2
