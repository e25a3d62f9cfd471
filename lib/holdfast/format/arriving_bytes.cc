#include "holdfast/format/arriving_bytes.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "holdfast/format/internal/segments.h"
#include "holdfast/snapshot/arena.h"

namespace holdfast { inline namespace v0_2 {

std::optional<ArrivingBytes> ArrivingBytes::of(const File& file, const CheckpointIndex& index) {
  const auto tiled = internal::tile(index);
  const auto* const segments = std::get_if<std::vector<internal::Segment>>(&tiled);
  // A source that has changed since its index was read can vouch for no copy.
  if (segments == nullptr || file.size() != index.file_length) return std::nullopt;
  ArrivingBytes bytes;
  // An arena has aligned memory, so the uncached read needs no bounce buffer.
  Arena head(index.user_block);
  if (file.read_uncached_at(head.bytes(), 0) != index.user_block) return std::nullopt;
  bytes.head_.assign(head.bytes().begin(), head.bytes().end());
  for (const internal::Segment& segment : *segments) {
    bytes.parts_.push_back({.end = segment.offset + segment.length, .expected = *segment.expected});
  }
  bytes.part_begin_ = index.user_block;
  return bytes;
}

void ArrivingBytes::append(std::span<const std::byte> bytes) {
  while (same_ && !bytes.empty()) {
    if (!append_to_head(bytes)) append_to_part(bytes);
  }
}

// The head is compared byte for byte. The digests that judge the rest come from the source's head, so the
// copy's must be the same.
bool ArrivingBytes::append_to_head(std::span<const std::byte>& bytes) {
  if (at_ >= head_.size()) return false;
  const std::size_t count = std::min<std::uint64_t>(bytes.size(), head_.size() - at_);
  same_ = std::equal(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count),
                     head_.begin() + static_cast<std::ptrdiff_t>(at_));
  at_ += count;
  bytes = bytes.subspan(count);
  return true;
}

void ArrivingBytes::append_to_part(std::span<const std::byte>& bytes) {
  if (part_ == parts_.size()) {  // longer than the file
    same_ = false;
    return;
  }
  const Part& part = parts_[part_];
  // A digest of the format is made of the digests of 8 MiB pieces, counted from the part's start. So one
  // piece is all that this object ever has to hash at once.
  const std::uint64_t piece_begin = part_begin_ + pieces_.size() * kDigestPiece;
  const std::uint64_t piece_end = std::min(part.end, piece_begin + kDigestPiece);
  const std::size_t count = std::min<std::uint64_t>(bytes.size(), piece_end - at_);
  piece_.append(bytes.first(count));
  at_ += count;
  bytes = bytes.subspan(count);
  if (at_ < piece_end) return;
  pieces_.push_back(piece_.take());
  if (at_ < part.end) return;
  same_ = combine_digests(pieces_) == part.expected;
  pieces_.clear();
  part_begin_ = part.end;
  ++part_;
}

// A part that has begun but not ended is not counted in part_, so a copy that is cut off fails here.
bool ArrivingBytes::is_whole() { return same_ && at_ >= head_.size() && part_ == parts_.size(); }

}}  // namespace holdfast::v0_2
