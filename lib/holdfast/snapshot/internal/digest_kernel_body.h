// The body of internal/digest_kernel.h, included by two sources with different compiler flags. Everything is
// local to the including source, which defines the width of its vectors (HOLDFAST_VECTOR_BYTES).
//
// Errors: none. Threads: pure.
#pragma once

#include <xxhash.h>

#include <cstring>

#include "holdfast/snapshot/internal/digest_kernel.h"

// The sanitizers cannot see streaming stores, and they must check these copies.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define HOLDFAST_STREAMING_STORES
#include <immintrin.h>
#endif

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

// A shorter copy is faster through the caches (stream_copy.cc).
constexpr std::size_t kShort = 32u << 10;

template <class Vector>
void stream(std::byte* to, const Vector& value) {
#if !defined(HOLDFAST_STREAMING_STORES)
  std::memcpy(to, &value, sizeof value);
#elif HOLDFAST_VECTOR_BYTES == 32
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), reinterpret_cast<const __m256i&>(value));
#else
  _mm_stream_si128(reinterpret_cast<__m128i*>(to), reinterpret_cast<const __m128i&>(value));
#endif
}

// One pass: into the buffer, and, with `kStream`, to `to`; true if nothing is above.
template <class Word, bool kStream>
bool copy_bite(std::byte* buffer, std::byte* to, const std::byte* from, std::size_t size, Word magnitude,
               Word largest) {
  constexpr std::size_t kVector = HOLDFAST_VECTOR_BYTES;
  using Vector [[gnu::vector_size(kVector)]] = Word;
  constexpr std::size_t kBlock = 2 * kVector;
  const Vector mask = Vector{} + magnitude;
  const Vector limit = Vector{} + largest;
  Vector any{};
  Vector other{};
  std::size_t at = 0;
  for (; at + kBlock <= size; at += kBlock) {
    Vector first;
    Vector second;
    // The next bite comes from memory while this one is hashed: a sixth less time.
    __builtin_prefetch(from + at + kBite);
    std::memcpy(&first, from + at, kVector);
    std::memcpy(&second, from + at + kVector, kVector);
#ifdef HOLDFAST_STREAMING_STORES
    // Both stores are of these registers: the compiler may not load `from` twice.
    asm("" : "+x"(first), "+x"(second));
#endif
    std::memcpy(buffer + at, &first, kVector);
    std::memcpy(buffer + at + kVector, &second, kVector);
    if constexpr (kStream) {
      stream(to + at, first);
      stream(to + at + kVector, second);
    }
    any |= (first & mask) > limit;
    other |= (second & mask) > limit;
  }
  any |= other;
  std::uint64_t words[kVector / sizeof(std::uint64_t)];
  std::memcpy(words, &any, kVector);
  std::uint64_t found = 0;
  for (const std::uint64_t word : words) found |= word;
  std::memcpy(buffer + at, from + at, size - at);
  asm volatile(""
               :
               : "r"(buffer)
               : "memory");  // what goes to `to` is what is hashed: `from` is not read again
  const bool rest = at == size || none_above(buffer + at, size - at, magnitude, largest);
  const std::size_t streamed = kStream ? at : 0;
  std::memcpy(to + streamed, buffer + streamed, size - streamed);
  return found == 0 && rest;
}

template <class Word, bool kStream>
bool copy_by(XXH3_state_t* state, std::byte* to, const std::byte* from, std::size_t size, FloatBits floats) {
  alignas(64) std::byte buffer[kBite];
  const Word magnitude = static_cast<Word>(floats.magnitude);
  const Word largest = static_cast<Word>(floats.largest);
  bool finite = true;
  while (size != 0) {
    const std::size_t bite = size < kBite ? size : kBite;
    finite &= copy_bite<Word, kStream>(buffer, to, from, bite, magnitude, largest);
    XXH3_128bits_update(state, buffer, bite);
    to += bite;
    from += bite;
    size -= bite;
  }
  return finite;
}

template <bool kStream>
bool copy_as(XXH3_state_t* state, std::byte* to, const std::byte* from, std::size_t size, FloatBits floats) {
  switch (floats.bytes) {
    case 1:
      return copy_by<std::int8_t, kStream>(state, to, from, size, floats);
    case 2:
      return copy_by<std::int16_t, kStream>(state, to, from, size, floats);
    case 8:
      return copy_by<std::int64_t, kStream>(state, to, from, size, floats);
    default:  // without floats nothing is above zero, of which no bit is looked at
      return copy_by<std::int32_t, kStream>(state, to, from, size, floats);
  }
}

XXH3_state_t* in(HashState& state) { return reinterpret_cast<XXH3_state_t*>(state.memory); }

void begin_hash(HashState& state) {
  static_assert(sizeof(XXH3_state_t) <= sizeof state.memory && alignof(XXH3_state_t) <= alignof(HashState));
  XXH3_128bits_reset(in(state));
}

bool add_to_hash(HashState& state, const std::byte* data, std::size_t size, FloatBits floats) {
  bool finite = true;
  while (size != 0) {
    const std::size_t bite = size < kBite ? size : kBite;
    if (floats.bytes != 0) finite &= all_finite(data, bite, floats);
    XXH3_128bits_update(in(state), data, bite);
    data += bite;
    size -= bite;
  }
  return finite;
}

bool copy_into_hash(HashState& state, std::byte* to, const std::byte* from, std::size_t size,
                    FloatBits floats) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(to) % HOLDFAST_VECTOR_BYTES == 0;
  if (size < kShort || !aligned) return copy_as<false>(in(state), to, from, size, floats);
  const bool finite = copy_as<true>(in(state), to, from, size, floats);
#ifdef HOLDFAST_STREAMING_STORES
  _mm_sfence();  // orders the streaming stores, because locks do not
#endif
  return finite;
}

void put_canonical(XXH128_hash_t hash, unsigned char* digest) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  std::memcpy(digest, canonical.digest, sizeof canonical.digest);
}

void end_hash(const HashState& state, unsigned char* digest) {
  put_canonical(XXH3_128bits_digest(reinterpret_cast<const XXH3_state_t*>(state.memory)), digest);
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
  put_canonical(hash, digest);
  return finite;
}

constexpr DigestKernel kKernel{&run_kernel, &begin_hash, &add_to_hash, &copy_into_hash, &end_hash};

}}}}  // namespace holdfast::v0_2::internal
