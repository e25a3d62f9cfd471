#include "holdfast/format/internal/piece_hasher.h"

#include <algorithm>
#include <utility>

#include "holdfast/snapshot/finite.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

PieceHasher::PieceHasher(const Snapshot& snapshot, bool look) : looking_(look) {
  const std::size_t tensors = snapshot.layout->tensors().size();
  first_piece_.reserve(tensors + 1);
  for (std::size_t i = 0; i < tensors; ++i) {
    first_piece_.push_back(pieces_.size());
    for (auto bytes = snapshot.bytes(i); !bytes.empty();) {
      const std::size_t size = std::min<std::size_t>(bytes.size(), kDigestPiece);
      pieces_.push_back({bytes.first(size), snapshot.layout->tensors()[i].dtype, i, snapshot.infinity(i)});
      bytes = bytes.subspan(size);
    }
  }
  first_piece_.push_back(pieces_.size());
  digests_.resize(pieces_.size());
}

PieceHasher::PieceHasher(std::vector<Piece> pieces, bool look)
    : pieces_(std::move(pieces)), first_piece_{0}, digests_(pieces_.size()), looking_(look) {}

void PieceHasher::work(const Stopped& stopped) {
  for (std::size_t i = next_++; i < pieces_.size() && !stopped; i = next_++) {
    if (!looking_.load(std::memory_order_relaxed)) {
      digests_[i] = digest_of(pieces_[i].bytes);
      continue;
    }
    const Inspected inspected = inspect_bytes(pieces_[i].bytes, pieces_[i].dtype, pieces_[i].infinity);
    digests_[i] = inspected.digest;
    if (inspected.finite) continue;
    not_finite_ = pieces_[i].tensor;
    // One such number decides, so the remaining pieces are only hashed.
    looking_ = false;
  }
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
