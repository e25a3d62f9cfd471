// Hashes the tensors of a snapshot piece by piece on any number of threads. The same pass can look for
// numbers that are not finite (snapshot/finite.h).
//
// Use: construct, run work() on several threads, then call finish() when all have returned.
// Errors: bad_alloc. Threads: work() on several at once.
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <vector>

#include "holdfast/format/internal/workers.h"
#include "holdfast/snapshot/snapshot.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class PieceHasher {
 public:
  struct Piece {
    std::span<const std::byte> bytes;
    DType dtype;
    std::size_t tensor = 0;  // in layout order
    Infinity infinity = Infinity::not_finite;
  };
  // `look`: looks for numbers that are not finite, until the first one.
  explicit PieceHasher(const Snapshot& snapshot, bool look = false);
  // Hashes these pieces only; use digests(), not finish().
  PieceHasher(std::vector<Piece> pieces, bool look);
  // Hashes pieces until none is left.
  void work(const Stopped& stopped);
  // The tensors' digests in layout order.
  std::vector<Digest> finish() const;
  const std::vector<Digest>& digests() const { return digests_; }  // of the pieces
  // A tensor with a number that is not finite; nullopt if there is none, or if `look` was false.
  std::optional<std::size_t> not_finite() const {
    const std::size_t found = not_finite_;
    return found == kNone ? std::nullopt : std::optional(found);
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  std::vector<Piece> pieces_;
  std::vector<std::size_t> first_piece_;  // of each tensor; the last entry is the total
  std::vector<Digest> digests_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> looking_;
  std::atomic<std::size_t> not_finite_{kNone};
};

}}}  // namespace holdfast::v0_2::internal
