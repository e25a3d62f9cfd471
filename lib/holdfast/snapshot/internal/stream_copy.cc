#include "holdfast/snapshot/internal/stream_copy.h"

#include <cstdint>
#include <cstring>

// The sanitizers cannot see streaming stores, and they must check these copies.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define HOLDFAST_STREAMING_STORES
#include <immintrin.h>
#endif

namespace holdfast { inline namespace v0_2 { namespace internal {

#ifdef HOLDFAST_STREAMING_STORES
namespace {

// A shorter copy is faster through the caches, and its reader probably follows soon.
constexpr std::size_t kShort = 32u << 10;
constexpr std::size_t kCacheLine = 64;

// Requires a destination at a cache line, and whole lines.
__attribute__((target("avx"))) void stream_lines(std::byte* to, const std::byte* from,
                                                 std::size_t bytes) noexcept {
  // Streaming stores go past the caches: the image is read much later, and training needs its caches now.
  for (const std::byte* const end = from + bytes; from != end; from += kCacheLine, to += kCacheLine) {
    const auto* const source = reinterpret_cast<const __m256i*>(from);
    auto* const target = reinterpret_cast<__m256i*>(to);
    const __m256i first = _mm256_loadu_si256(source);
    const __m256i second = _mm256_loadu_si256(source + 1);
    _mm256_stream_si256(target, first);
    _mm256_stream_si256(target + 1, second);
  }
  _mm_sfence();  // orders the streaming stores, because locks do not
}

bool can_stream() noexcept {
  static const bool kCan = __builtin_cpu_supports("avx") != 0;
  return kCan;
}

}  // namespace

void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  if (bytes >= kShort && can_stream()) {
    // Streaming stores fault on an unaligned address, so the first bytes go the usual way.
    const std::size_t before = (kCacheLine - reinterpret_cast<std::uintptr_t>(to) % kCacheLine) % kCacheLine;
    std::memcpy(to, from, before);
    const std::size_t lines = (bytes - before) / kCacheLine * kCacheLine;
    stream_lines(to + before, from + before, lines);
    const std::size_t done = before + lines;
    to += done;
    from += done;
    bytes -= done;
  }
  std::memcpy(to, from, bytes);
}
#else
void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  std::memcpy(to, from, bytes);
}
#endif

}}}  // namespace holdfast::v0_2::internal
