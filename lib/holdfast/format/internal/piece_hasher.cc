#include "holdfast/format/internal/piece_hasher.h"

#include <string>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/utf8.h"
#include "holdfast/snapshot/finite.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

PieceHasher::PieceHasher(const Snapshot& snapshot, bool check_finite, const Recheck& recheck)
    : snapshot_(snapshot), check_finite_(check_finite) {
  const std::size_t tensors = snapshot.layout->tensors().size();
  const std::vector<TensorPiece> pieces = pieces_of(*snapshot.layout);
  pieces_.reserve(pieces.size());
  digests_.reserve(pieces.size());
  first_piece_.reserve(tensors + 1);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    // A tensor without elements has no piece, so several tensors may begin at the same one.
    while (first_piece_.size() <= pieces[i].tensor) first_piece_.push_back(i);
    add(pieces[i], i, recheck);
  }
  first_piece_.resize(tensors + 1, pieces.size());
}

PieceHasher::PieceHasher(const Snapshot& snapshot, std::span<const std::size_t> pieces, bool check_finite,
                         const Recheck& recheck)
    : snapshot_(snapshot), first_piece_{0}, check_finite_(check_finite) {
  const std::vector<TensorPiece> all = pieces_of(*snapshot.layout);
  pieces_.reserve(pieces.size());
  digests_.reserve(pieces.size());
  for (const std::size_t i : pieces) add(all[i], i, recheck);
}

void PieceHasher::add(const TensorPiece& piece, std::size_t index, const Recheck& recheck) {
  const std::span<const std::byte> image = std::as_const(*snapshot_.arena).bytes();
  const Inspected* const known = snapshot_.digests ? snapshot_.digests->find(index) : nullptr;
  // A known digest is that of the staged bytes. A sample is hashed again, so that memory that has changed
  // since is found before the head is sealed (kRecheckEvery in layout.h).
  if (known == nullptr || index % recheck.every == recheck.round % recheck.every)
    to_hash_.push_back(pieces_.size());
  pieces_.push_back({image.subspan(piece.bytes.begin, piece.bytes.size()), piece.tensor, known != nullptr});
  digests_.push_back(known != nullptr ? known->digest : Digest{});
  if (known != nullptr && !known->finite && check_finite_) found_not_finite(piece.tensor);
}

// One such number decides, so the remaining pieces are only hashed.
void PieceHasher::found_not_finite(std::size_t tensor) {
  not_finite_ = tensor;
  check_finite_ = false;
}

void PieceHasher::work(const Stopped& stopped) {
  for (std::size_t i = next_++; i < to_hash_.size() && !stopped; i = next_++) {
    const Piece& piece = pieces_[to_hash_[i]];
    Digest& digest = digests_[to_hash_[i]];
    // check_finite_ is read relaxed: a thread that sees its change late looks through one more piece, and
    // nothing else.
    if (piece.known) {
      if (digest_of(piece.bytes) != digest) refuse(piece);
    } else if (!check_finite_.load(std::memory_order_relaxed)) {
      digest = digest_of(piece.bytes);
    } else {
      const DType dtype = snapshot_.layout->tensors()[piece.tensor].dtype;
      const Inspected inspected = inspect_bytes(piece.bytes, dtype, snapshot_.infinity(piece.tensor));
      digest = inspected.digest;
      if (!inspected.finite) found_not_finite(piece.tensor);
    }
  }
}

void PieceHasher::refuse(const Piece& piece) const {
  throw Error(
      "tensor '" + printable(snapshot_.layout->tensors()[piece.tensor].name) +
      "' changed in memory after it was staged: the machine's memory may be faulty, or other code writes to "
      "it; this save is given up. Check the kernel's log for memory errors, and older checkpoints with "
      "`holdfast verify`");
}

std::vector<Digest> PieceHasher::finish() const {
  std::vector<Digest> tensors;
  tensors.reserve(first_piece_.size() - 1);
  for (std::size_t i = 0; i + 1 < first_piece_.size(); ++i) {
    tensors.push_back(
        combine_digests(std::span(digests_).subspan(first_piece_[i], first_piece_[i + 1] - first_piece_[i])));
  }
  return tensors;
}

}}}  // namespace holdfast::v0_2::internal
