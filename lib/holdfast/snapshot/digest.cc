#include "holdfast/snapshot/digest.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "holdfast/snapshot/internal/digest_kernel.h"

namespace holdfast { inline namespace v0_2 {

Digest digest_of(std::span<const std::byte> bytes) {
  unsigned char canonical[sizeof(Digest)];
  internal::digest_kernel().digest(bytes.data(), bytes.size(), {}, canonical);
  Digest digest;
  std::memcpy(digest.bytes.data(), canonical, sizeof canonical);
  return digest;
}

Digest combine_digests(std::span<const Digest> piece_digests) {
  static_assert(sizeof(Digest) == 16, "a list of digests is hashed as one run of bytes");
  return digest_of(std::as_bytes(piece_digests));
}

Digest tensor_digest(std::span<const std::byte> bytes) {
  std::vector<Digest> pieces;
  pieces.reserve(bytes.size() / kDigestPiece + 1);
  while (!bytes.empty()) {
    const std::size_t size = std::min<std::size_t>(bytes.size(), kDigestPiece);
    pieces.push_back(digest_of(bytes.first(size)));
    bytes = bytes.subspan(size);
  }
  // Digests of pieces, then one digest of those: several cores and several ranks can share a tensor.
  return combine_digests(pieces);
}

std::string to_hex(const Digest& digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * digest.bytes.size());
  for (const std::byte byte : digest.bytes) {
    hex += kDigits[std::to_integer<unsigned>(byte) >> 4];
    hex += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return hex;
}

std::optional<Digest> digest_from_hex(std::string_view hex) {
  Digest digest;
  if (hex.size() != 2 * digest.bytes.size()) return std::nullopt;
  for (std::size_t i = 0; i < hex.size(); ++i) {
    const char c = hex[i];
    unsigned value = 0;
    if (c >= '0' && c <= '9') {
      value = static_cast<unsigned>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      value = static_cast<unsigned>(c - 'a') + 10;
    } else {
      // Capital letters are refused: one digest has one spelling, so texts of digests can be compared.
      return std::nullopt;
    }
    digest.bytes[i / 2] = (digest.bytes[i / 2] << 4) | static_cast<std::byte>(value);
  }
  return digest;
}

}}  // namespace holdfast::v0_2
