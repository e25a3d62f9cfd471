#include "holdfast/snapshot/digest.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "holdfast/base/system/random_bytes.h"
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
  return in_hex({reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()});
}

std::optional<Digest> digest_from_hex(std::string_view hex) {
  Digest digest;
  return from_hex(hex, digest.bytes) ? std::optional(digest) : std::nullopt;
}

}}  // namespace holdfast::v0_2
