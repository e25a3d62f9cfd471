#include "holdfast/format/internal/header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "holdfast/base/text.h"
#include "holdfast/format/internal/little_endian.h"
#include "holdfast/format/internal/segments.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

void put_digest(std::span<std::byte> bytes, std::size_t at, const Digest& digest) {
  std::copy(digest.bytes.begin(), digest.bytes.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
}

Digest get_digest(std::span<const std::byte> bytes, std::size_t at) {
  Digest digest;
  std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), digest.bytes.size(), digest.bytes.begin());
  return digest;
}

Digest header_digest(std::span<const std::byte> bytes) {
  std::array<std::byte, kHeaderSize> copy;
  std::copy_n(bytes.begin(), kHeaderSize, copy.begin());
  // The digest's own field counts as zeros; it cannot cover itself.
  put_digest(copy, kHeaderDigestAt, Digest{});
  return digest_of(copy);
}

std::string wrong_length(std::uint64_t sealed, std::uint64_t actual) {
  const bool shorter = actual < sealed;
  return "the file has " + std::to_string(actual) + " bytes, " +
         std::to_string(shorter ? sealed - actual : actual - sealed) + (shorter ? " fewer" : " more") +
         " than were sealed";
}

}  // namespace

void write_header(std::span<std::byte> bytes, const Header& header) {
  bytes = bytes.first(kHeaderSize);
  // Unused bytes are zero, so that a later version can give them a meaning.
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  std::memcpy(bytes.data() + kMagicAt, kMagic.data(), kMagic.size());
  put_little_endian(bytes, kFormatVersionAt, header.format_version);
  put_little_endian(bytes, kLowestReaderAt, header.lowest_reader);
  put_little_endian(bytes, kFileLengthAt, header.file_length);
  put_little_endian(bytes, kUserBlockAt, header.user_block);
  put_little_endian(bytes, kIndexLengthAt, header.index_length);
  put_digest(bytes, kIndexDigestAt, header.index_digest);
  put_digest(bytes, kHeaderDigestAt, header_digest(bytes));
}

std::variant<Header, Rejection> read_header(std::span<const std::byte> bytes, std::uint64_t file_size) {
  // Hash first, parse after: no field of a damaged header is believed.
  if (header_digest(bytes) != get_digest(bytes, kHeaderDigestAt)) {
    // A file without the magic number is more likely a foreign file than a damaged checkpoint.
    const bool magic = std::memcmp(bytes.data() + kMagicAt, kMagic.data(), kMagic.size()) == 0;
    return damaged(magic ? "header: digest differs" : "not a Holdfast checkpoint (no magic number)");
  }
  if (std::memcmp(bytes.data() + kMagicAt, kMagic.data(), kMagic.size()) != 0) {
    return damaged("not a Holdfast checkpoint (no magic number)");
  }

  Header header;
  header.format_version = get_little_endian<std::uint32_t>(bytes, kFormatVersionAt);
  header.lowest_reader = get_little_endian<std::uint32_t>(bytes, kLowestReaderAt);
  // The digest holds, so this is a newer format and no flipped bit.
  if (header.lowest_reader > kFormatVersion) {
    return Rejection{Rejection::Kind::newer_format,
                     "format " + std::to_string(header.format_version) + " needs a reader of format " +
                         std::to_string(header.lowest_reader) + ", this one reads up to " +
                         std::to_string(kFormatVersion) + ": use a newer Holdfast"};
  }
  if (header.format_version == 0 || header.lowest_reader == 0 ||
      header.lowest_reader > header.format_version) {
    return damaged("header: format " + std::to_string(header.format_version) + " for readers of format " +
                   std::to_string(header.lowest_reader) + " cannot be");
  }

  header.file_length = get_little_endian<std::uint64_t>(bytes, kFileLengthAt);
  header.user_block = get_little_endian<std::uint64_t>(bytes, kUserBlockAt);
  header.index_length = get_little_endian<std::uint64_t>(bytes, kIndexLengthAt);
  header.index_digest = get_digest(bytes, kIndexDigestAt);
  if (header.file_length != file_size) return damaged(wrong_length(header.file_length, file_size));
  // Bounded before it is used: the index's buffer has the size of the user block.
  if (!std::has_single_bit(header.user_block) || header.user_block < kMinUserBlock ||
      header.user_block > kMaxUserBlock || header.user_block > file_size) {
    return damaged("header: a user block of " + std::to_string(header.user_block) + " bytes cannot be");
  }
  // Cannot underflow, because the block has at least 8192 bytes.
  if (header.index_length > header.user_block - kIndexOffset) {
    return damaged("header: an index of " + std::to_string(header.index_length) + " bytes cannot be");
  }
  // Checked for this version only: a later one may use these bytes.
  const auto rest = bytes.subspan(kHeaderFieldsEnd, kHeaderSize - kHeaderFieldsEnd);
  if (header.format_version == kFormatVersion &&
      std::any_of(rest.begin(), rest.end(), [](std::byte b) { return b != std::byte{0}; })) {
    return damaged("header: bytes after its last field are not zero");
  }
  return header;
}

}}}  // namespace holdfast::v0_2::internal
