#include "holdfast/snapshot/piece_digests.h"

#include <algorithm>
#include <cstring>

#include "holdfast/snapshot/internal/float_bits.h"
#include "holdfast/snapshot/internal/stream_copy.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// After so many bytes a copier asks whether the training waits. The bytes themselves pass through the nearest
// cache in bites of 4 KiB (digest_kernel_body.h), which measured best.
constexpr std::uint64_t kBlock = 256u << 10;

}  // namespace

std::vector<TensorPiece> pieces_of(const ImageLayout& layout) {
  std::vector<TensorPiece> pieces;
  pieces.reserve(layout.tensors().size());
  for (std::size_t i = 0; i < layout.tensors().size(); ++i) {
    const std::uint64_t bytes = layout.tensors()[i].bytes();
    for (std::uint64_t done = 0; done < bytes; done += kDigestPiece) {
      const std::uint64_t begin = layout.offset(i) + done;
      pieces.push_back({i, {begin, begin + std::min(bytes - done, kDigestPiece)}});
    }
  }
  return pieces;
}

PieceDigests::PieceDigests(const Snapshot& snapshot)
    : layout_(snapshot.layout),
      image_(std::as_const(*snapshot.arena).bytes()),
      trained_(snapshot.trained),
      pieces_(pieces_of(*layout_)),
      by_offset_(pieces_.size()),
      found_(pieces_.size()),
      known_(pieces_.size()) {
  for (std::size_t i = 0; i < by_offset_.size(); ++i) by_offset_[i] = i;
  const auto before = [this](std::size_t a, std::size_t b) {
    return pieces_[a].bytes.begin < pieces_[b].bytes.begin;
  };
  if (!std::is_sorted(by_offset_.begin(), by_offset_.end(), before)) {
    std::sort(by_offset_.begin(), by_offset_.end(), before);
  }
}

std::uint64_t PieceDigests::bytes() const {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < pieces_.size(); ++i) bytes += find(i) != nullptr ? pieces_[i].bytes.size() : 0;
  return bytes;
}

std::size_t PieceDigests::piece_at(std::uint64_t offset) const noexcept {
  const auto found =
      std::upper_bound(by_offset_.begin(), by_offset_.end(), offset,
                       [this](std::uint64_t at, std::size_t i) { return at < pieces_[i].bytes.end; });
  return found == by_offset_.end() ? kNone : *found;
}

void PieceDigester::begin(std::size_t piece) noexcept {
  piece_ = piece;
  finite_ = true;
  const std::size_t tensor = digests_.pieces_[piece].tensor;
  const DType dtype = digests_.layout_->tensors()[tensor].dtype;
  // An empty list means that every tensor is trained (Snapshot::trained).
  const bool trained = digests_.trained_.empty() || digests_.trained_[tensor];
  floats_ = internal::float_bits(dtype, trained ? Infinity::not_finite : Infinity::allowed);
  element_ = size_of(dtype);
  internal::digest_kernel().begin(hash_);
}

void PieceDigester::end() noexcept {
  unsigned char digest[sizeof(Digest)];
  internal::digest_kernel().end(hash_, digest);
  Inspected& found = digests_.found_[piece_];
  std::memcpy(found.digest.bytes.data(), digest, sizeof digest);
  found.finite = finite_;
  digests_.known_[piece_] = 1;
  piece_ = PieceDigests::kNone;
}

ByteRange PieceDigester::range_of(std::span<const std::byte> written) const noexcept {
  const auto begin = static_cast<std::uint64_t>(written.data() - digests_.image_.data());
  return {begin, begin + written.size()};
}

template <class Plain, class Digesting>
void PieceDigester::advance(ByteRange range, const Plain& plain, const Digesting& digesting) noexcept {
  while (range.size() != 0) {
    if (digests_.stopped()) return plain(range);
    // Only a stream that passes a whole piece in order has its digest. After a jump it begins anew.
    if (piece_ == PieceDigests::kNone || next_ != range.begin) {
      const std::size_t piece = digests_.piece_at(range.begin);
      piece_ = PieceDigests::kNone;
      if (piece == PieceDigests::kNone) return plain(range);
      const ByteRange whole = digests_.pieces_[piece].bytes;
      if (whole.begin != range.begin) {  // between tensors, or in a piece that began elsewhere
        const std::uint64_t end = whole.begin > range.begin ? whole.begin : whole.end;
        const ByteRange rest{range.begin, std::min(range.end, end)};
        plain(rest);
        range.begin = rest.end;
        continue;
      }
      begin(piece);
    }
    const std::uint64_t last = digests_.pieces_[piece_].bytes.end;
    const ByteRange part{range.begin, std::min({range.end, last, range.begin + kBlock})};
    // The check of floats needs whole elements. A piece that is cut inside one gets no digest here, and the
    // writer hashes it.
    const bool cut = part.end != last && part.size() % element_ != 0;
    if (cut) {
      piece_ = PieceDigests::kNone;
      plain(part);
    } else {
      finite_ &= digesting(part);
      next_ = part.end;
      if (next_ == last) end();
    }
    range.begin = part.end;
  }
}

void PieceDigester::copy(std::span<const std::byte> from, std::span<std::byte> to) noexcept {
  const ByteRange all = range_of(to);
  advance(
      all,
      [&](ByteRange part) {
        const std::uint64_t at = part.begin - all.begin;
        internal::stream_copy(to.data() + at, from.data() + at, part.size());
      },
      [&](ByteRange part) {
        const std::uint64_t at = part.begin - all.begin;
        return internal::digest_kernel().copy(hash_, to.data() + at, from.data() + at, part.size(), floats_);
      });
}

void PieceDigester::passed(std::span<const std::byte> written) noexcept {
  const ByteRange all = range_of(written);
  advance(
      all, [](ByteRange) {},
      [&](ByteRange part) {
        return internal::digest_kernel().add(hash_, written.data() + (part.begin - all.begin), part.size(),
                                             floats_);
      });
}

}}  // namespace holdfast::v0_2
