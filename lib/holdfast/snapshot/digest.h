// Digests of tensors: XXH3-128 over 8 MiB pieces counted from the tensor's start; the tensor's digest is the
// XXH3-128 of its pieces' digests (16 bytes each, canonical big-endian order). So one big tensor can be
// hashed by all cores, and ranks can share it. A tensor of at most one piece still hashes the list of one; an
// empty tensor is the digest of the empty list. XXH3-128:
// https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md. Finds torn and rotten bytes; it is not a
// signature.
//
// Threads: free functions, pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace holdfast::inline v1 {

struct Digest {
  std::array<std::byte, 16> bytes{};  // canonical (big-endian) form of XXH3-128
  auto operator<=>(const Digest&) const = default;
};

inline constexpr std::uint64_t kDigestPiece = 8u << 20;

Digest digest_of(std::span<const std::byte> bytes);             // plain XXH3-128
Digest combine_digests(std::span<const Digest> piece_digests);  // XXH3-128 of the concatenation
Digest tensor_digest(std::span<const std::byte> bytes);         // pieces, then combined
std::string to_hex(const Digest& digest);                       // 32 lower-case digits
std::optional<Digest> digest_from_hex(std::string_view hex);

}  // namespace holdfast::inline v1
