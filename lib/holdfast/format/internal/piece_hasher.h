// The digests of a snapshot's tensors. What was digested while the image was filled
// (snapshot/piece_digests.h) is taken from there; the rest, and a sample of those, is hashed piece by piece
// on any number of threads. The same pass can look for numbers that are not finite (snapshot/finite.h).
//
// Use: construct, run work() on several threads, then call finish() when all have returned.
// Errors: bad_alloc; work(): Error with the tensor, if a sampled piece is no longer what was staged.
// Threads: work() on several at once.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "holdfast/format/image_writer.h"
#include "holdfast/format/internal/workers.h"
#include "holdfast/snapshot/piece_digests.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class PieceHasher {
 public:
  // Hashes the whole snapshot. `check_finite`: is any number not finite?
  PieceHasher(const Snapshot& snapshot, bool check_finite, const Recheck& recheck);
  // Hashes these pieces of the layout alone (indices into pieces_of()); use digests(), not finish().
  PieceHasher(const Snapshot& snapshot, std::span<const std::size_t> pieces, bool check_finite,
              const Recheck& recheck);
  // Hashes pieces until none is left.
  void work(const Stopped& stopped);
  // The tensors' digests in layout order.
  std::vector<Digest> finish() const;
  const std::vector<Digest>& digests() const { return digests_; }  // of the pieces
  // A tensor with a number that is not finite; nullopt if there is none, or if `check_finite` was false.
  std::optional<std::size_t> not_finite() const {
    const std::size_t found = not_finite_;
    return found == kNone ? std::nullopt : std::optional(found);
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  struct Piece {
    std::span<const std::byte> bytes;
    std::size_t tensor = 0;  // in layout order
    bool known = false;      // digests_ has it already; it is hashed once more only to compare
  };
  void add(const TensorPiece& piece, std::size_t index, const Recheck& recheck);
  void found_not_finite(std::size_t tensor);
  [[noreturn]] void refuse(const Piece& piece) const;

  const Snapshot& snapshot_;
  std::vector<Piece> pieces_;
  std::vector<std::size_t> to_hash_;      // indices of pieces_
  std::vector<std::size_t> first_piece_;  // of each tensor; the last entry is the total
  std::vector<Digest> digests_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> check_finite_;
  std::atomic<std::size_t> not_finite_{kNone};
};

}}}  // namespace holdfast::v0_2::internal
