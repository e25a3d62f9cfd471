#include "holdfast/snapshot/copy_list.h"

#include <algorithm>

#include "holdfast/snapshot/internal/stream_copy.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// Large enough that taking a piece costs nothing, and small enough that all threads end at about the same
// time.
constexpr std::uint64_t kPiece = 1u << 20;

}  // namespace

void CopyList::add(std::span<const std::byte> from, std::span<std::byte> to) {
  // An empty tensor has no place in the order of bytes, and the search below needs each start to differ.
  if (from.empty()) return;
  jobs_.push_back({bytes_, from.size(), to.data(), from.data()});
  bytes_ += from.size();
}

const CopyList::Job& CopyList::job_at(std::uint64_t at) const noexcept {
  const auto after = std::upper_bound(jobs_.begin(), jobs_.end(), at,
                                      [](std::uint64_t place, const Job& job) { return place < job.start; });
  return *std::prev(after);
}

void CopyList::copy(std::uint64_t begin, std::uint64_t end) const noexcept {
  if (begin >= end) return;
  for (const Job* job = &job_at(begin); begin < end; ++job) {
    const std::uint64_t skip = begin - job->start;
    const std::uint64_t bytes = std::min(end - begin, job->bytes - skip);
    internal::stream_copy(job->to + skip, job->from + skip, bytes);
    begin += bytes;
  }
}

void CopyList::work() noexcept {
  while (true) {
    // Relaxed: the counter only divides the work. The end of the threads makes the copies visible.
    const std::uint64_t begin = taken_.fetch_add(kPiece, std::memory_order_relaxed);
    if (begin >= bytes_) return;
    copy(begin, std::min(bytes_, begin + kPiece));
  }
}

void CopyList::work(PieceDigests& digests) noexcept {
  PieceDigester stream(digests);
  std::uint64_t begin = taken_.load(std::memory_order_relaxed);
  while (begin < bytes_) {
    // The training waits for the copy by now, and a digest takes four times the instructions of the copy.
    if (digests.stopped()) return work();
    const Job& job = job_at(begin);
    const std::uint64_t skip = begin - job.start;
    // To the next border of a piece, as tensors are cut from their start.
    const std::uint64_t bytes = std::min(job.bytes - skip, kDigestPiece - skip % kDigestPiece);
    // Not fetch_add: how far a turn goes depends on where it begins.
    if (!taken_.compare_exchange_weak(begin, begin + bytes, std::memory_order_relaxed)) continue;
    stream.copy({job.from + skip, bytes}, {job.to + skip, bytes});
    begin = taken_.load(std::memory_order_relaxed);
  }
}

}}  // namespace holdfast::v0_2
