// Digests of a snapshot's pieces (digest.h) that were computed while the image was filled, each with the
// verdict whether its numbers are finite. Together with the image it is what a copier hands to the writer:
// the writer then reads a piece only to write it, and hashes what is missing here.
//
//   auto digests = std::make_shared<PieceDigests>(*snapshot);
//   PieceDigester stream(*digests);            // on the copier's thread
//   stream.copy(live, slot);                  // digests while it copies
//   snapshot->digests = digests;
//
// Errors: std::bad_alloc of the constructor. Threads: streams of different threads at once, for different
// pieces; find() after what synchronises with them; stop() any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/snapshot/internal/digest_kernel.h"
#include "holdfast/snapshot/snapshot.h"

namespace holdfast { inline namespace v0_2 {

// A piece of one tensor: up to kDigestPiece bytes, counted from the tensor's start.
struct TensorPiece {
  std::size_t tensor = 0;  // in layout order
  ByteRange bytes;         // in the image
};
// The pieces of all tensors, in the layout's order.
std::vector<TensorPiece> pieces_of(const ImageLayout& layout);

class HOLDFAST_EXPORT PieceDigests {
 public:
  // Requires that the snapshot's image outlives this object's streams.
  explicit PieceDigests(const Snapshot& snapshot);

  const std::vector<TensorPiece>& pieces() const { return pieces_; }
  // The digest of pieces()[index]; nullptr if nobody has digested that piece whole.
  const Inspected* find(std::size_t index) const { return known_[index] != 0 ? &found_[index] : nullptr; }
  std::uint64_t bytes() const;  // of the pieces that find() knows

  // The training waits for the copy: from now on it is copied without digests.
  void stop() noexcept { stopped_.store(true, std::memory_order_relaxed); }
  bool stopped() const noexcept { return stopped_.load(std::memory_order_relaxed); }

 private:
  friend class PieceDigester;
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  // Index of the first piece that ends after `offset`; kNone if there is none.
  std::size_t piece_at(std::uint64_t offset) const noexcept;

  std::shared_ptr<const ImageLayout> layout_;
  std::span<const std::byte> image_;
  std::vector<bool> trained_;  // as Snapshot::trained
  std::vector<TensorPiece> pieces_;
  std::vector<std::size_t> by_offset_;  // indices of pieces_
  std::vector<Inspected> found_;        // by piece
  std::vector<unsigned char> known_;    // by piece; bytes, because threads write neighbours at once
  std::atomic<bool> stopped_{false};
};

// Digests what is written to the image, in ascending order of its bytes. A piece that does not pass whole
// through one stream, or is cut within an element, stays without a digest.
class HOLDFAST_EXPORT PieceDigester {
 public:
  explicit PieceDigester(PieceDigests& digests) : digests_(digests) {}
  PieceDigester(const PieceDigester&) = delete;
  PieceDigester& operator=(const PieceDigester&) = delete;

  // Copies `from` to `to`, and digests the bytes in `to`, even if `from` changes meanwhile. Requires equal
  // sizes, and that `to` lies in the image.
  void copy(std::span<const std::byte> from, std::span<std::byte> to) noexcept;
  // These bytes of the image have just been written, and are in a cache.
  void passed(std::span<const std::byte> written) noexcept;

 private:
  // Splits the range at the borders of pieces, calls `plain(range)` or `digesting(range)` for each part.
  template <class Plain, class Digesting>
  void advance(ByteRange range, const Plain& plain, const Digesting& digesting) noexcept;
  void begin(std::size_t piece) noexcept;
  void end() noexcept;
  ByteRange range_of(std::span<const std::byte> written) const noexcept;

  PieceDigests& digests_;
  std::size_t piece_ = PieceDigests::kNone;  // in progress
  std::uint64_t next_ = 0;                   // its next byte in the image
  bool finite_ = true;
  internal::FloatBits floats_;
  std::size_t element_ = 1;  // bytes of one of its elements
  internal::HashState hash_;
};

}}  // namespace holdfast::v0_2
