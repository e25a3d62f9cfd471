// Hashes the tensors of a snapshot piece by piece, and finds out in the same pass whether all their numbers
// are finite; any number of threads may help.
//
// Use: construct, let threads run work(), then finish() on one of them when all have returned.
// Threads: work() from several at once.
#pragma once

#include <atomic>
#include <vector>

#include "holdfast/format/internal/workers.h"
#include "holdfast/snapshot/snapshot.h"

namespace holdfast::inline v1::internal {

class PieceHasher {
 public:
  struct Piece {
    std::span<const std::byte> bytes;
    DType dtype;
  };
  // `look`: for numbers that are not finite, until the first is found.
  explicit PieceHasher(const Snapshot& snapshot, bool look = false);
  // Some pieces alone, for digests() of them; there are no tensors to finish.
  PieceHasher(std::vector<Piece> pieces, bool look);
  // Takes pieces until none is left.
  void work(const Stopped& stopped);
  // The tensors' digests in layout order.
  std::vector<Digest> finish() const;
  const std::vector<Digest>& digests() const { return digests_; }  // of the pieces
  bool finite() const { return finite_; }

 private:
  std::vector<Piece> pieces_;
  std::vector<std::size_t> first_piece_;  // of each tensor, and the end
  std::vector<Digest> digests_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> looking_;
  std::atomic<bool> finite_{true};
};

}  // namespace holdfast::inline v1::internal
