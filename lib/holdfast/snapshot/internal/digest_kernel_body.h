// The body of internal/digest_kernel.h, included by two sources with different compiler flags. Everything is
// local to the including source, which defines the width of its vectors (HOLDFAST_VECTOR_BYTES).
//
// Errors: none. Threads: pure.
#pragma once

#include <xxhash.h>

#include <cstring>

#include "holdfast/snapshot/internal/digest_kernel.h"

namespace holdfast { inline namespace v0_2 { namespace internal { namespace {

// Bytes that are checked and then hashed. Both passes find them in the nearest cache, and the check loads
// them from memory as fast as a hash alone would.
constexpr std::size_t kBite = 4096;

// Explicit vectors, because the compiler does not vectorise the plain loop at -O2.
template <class Word>
bool none_above(const std::byte* data, std::size_t size, Word magnitude, Word largest) {
  constexpr std::size_t kVector = HOLDFAST_VECTOR_BYTES;
  using Vector [[gnu::vector_size(kVector)]] = Word;
  constexpr std::size_t kBlock = 4 * kVector;
  const Vector mask = Vector{} + magnitude;
  const Vector limit = Vector{} + largest;
  // Four variables, because an array would live in memory and cost more than the check.
  Vector first{};
  Vector second{};
  Vector third{};
  Vector fourth{};
  const auto above = [&](const std::byte* from) {
    Vector words;
    std::memcpy(&words, from, kVector);
    return (words & mask) > limit;
  };
  std::size_t at = 0;
  for (; at + kBlock <= size; at += kBlock) {
    first |= above(data + at);
    second |= above(data + at + kVector);
    third |= above(data + at + 2 * kVector);
    fourth |= above(data + at + 3 * kVector);
  }
  if (at < size) {
    std::byte rest[kBlock] = {};
    std::memcpy(rest, data + at, size - at);
    for (std::size_t i = 0; i < kBlock; i += kVector) first |= above(rest + i);
  }
  const Vector any = first | second | third | fourth;
  std::uint64_t words[kVector / sizeof(std::uint64_t)];
  std::memcpy(words, &any, kVector);
  std::uint64_t found = 0;
  for (const std::uint64_t word : words) found |= word;
  return found == 0;
}

bool all_finite(const std::byte* data, std::size_t size, FloatBits floats) {
  switch (floats.bytes) {
    case 1:
      return none_above(data, size, static_cast<std::int8_t>(floats.magnitude),
                        static_cast<std::int8_t>(floats.largest));
    case 2:
      return none_above(data, size, static_cast<std::int16_t>(floats.magnitude),
                        static_cast<std::int16_t>(floats.largest));
    case 4:
      return none_above(data, size, static_cast<std::int32_t>(floats.magnitude),
                        static_cast<std::int32_t>(floats.largest));
    case 8:
      return none_above(data, size, floats.magnitude, floats.largest);
    default:
      return true;
  }
}

bool run_kernel(const std::byte* data, std::size_t size, FloatBits floats, unsigned char* digest) {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  std::size_t at = 0;
  bool finite = true;
  while (finite && floats.bytes != 0 && at < size) {
    const std::size_t bite = size - at < kBite ? size - at : kBite;
    finite = all_finite(data + at, bite, floats);
    XXH3_128bits_update(&state, data + at, bite);
    at += bite;
  }
  XXH128_hash_t hash;
  if (at == 0) {
    hash = XXH3_128bits(data, size);
  } else {
    XXH3_128bits_update(&state, data + at, size - at);
    hash = XXH3_128bits_digest(&state);
  }
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  std::memcpy(digest, canonical.digest, sizeof canonical.digest);
  return finite;
}

}}}}  // namespace holdfast::v0_2::internal
