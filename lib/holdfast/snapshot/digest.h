// Digests of tensors: XXH3-128 of each 8 MiB piece, counted from the tensor's start, then XXH3-128 of these
// digests (16 bytes each, big-endian). So all cores can hash one large tensor, and ranks can share it. A
// tensor of one piece hashes a list of one; an empty tensor, the empty list. Finds torn and rotten bytes; it
// is no signature. XXH3-128: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md.
//
// Errors: none. Threads: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

struct Digest {
  std::array<std::byte, 16> bytes{};  // canonical (big-endian) form of XXH3-128
  auto operator<=>(const Digest&) const = default;
};

inline constexpr std::uint64_t kDigestPiece = 8u << 20;

HOLDFAST_EXPORT Digest digest_of(std::span<const std::byte> bytes);  // plain XXH3-128
HOLDFAST_EXPORT Digest
combine_digests(std::span<const Digest> piece_digests);                       // XXH3-128 of the concatenation
HOLDFAST_EXPORT Digest tensor_digest(std::span<const std::byte> bytes);       // pieces, then combined
HOLDFAST_EXPORT std::string to_hex(const Digest& digest);                     // 32 lower-case digits
HOLDFAST_EXPORT std::optional<Digest> digest_from_hex(std::string_view hex);  // nullopt if malformed

}}  // namespace holdfast::v0_2
