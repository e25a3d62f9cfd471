// The loops of digest_of, inspect_bytes and PieceDigester, in two versions: for all machines, and for those
// with AVX2 (a third less processor time). The process chooses once.
//
// Plain types only: the AVX2 source has other compiler flags, and must not share inline functions of the
// standard library with the rest of the program.
// Errors: none. Threads: pure functions; one thread a HashState.
#pragma once

#include <cstddef>
#include <cstdint>

namespace holdfast { inline namespace v0_2 { namespace internal {

// How to recognise a float that is not finite: its bits without the sign, as an integer of `bytes` bytes,
// exceed `largest`.
struct FloatBits {
  int bytes = 0;  // 0: not a float, nothing to look at
  std::int64_t magnitude = 0;
  std::int64_t largest = 0;
};

// A hash in progress: memory for XXH3_state_t, which begin() makes.
struct alignas(64) HashState {
  unsigned char memory[640];
};

// All digests are canonical XXH3-128 (16 bytes). The checks return false if a float is not finite; a float
// that a call's bytes cut in two counts as finite.
struct DigestKernel {
  bool (*digest)(const std::byte* data, std::size_t size, FloatBits floats, unsigned char* digest);

  void (*begin)(HashState& state);
  // Hashes the next bytes.
  bool (*add)(HashState& state, const std::byte* data, std::size_t size, FloatBits floats);
  // Copies the next bytes, and hashes what it wrote: through a buffer in the nearest cache, so the digest
  // fits the copy even if another thread changes `from` meanwhile. The copy bypasses the caches, as
  // stream_copy() does.
  bool (*copy)(HashState& state, std::byte* to, const std::byte* from, std::size_t size, FloatBits floats);
  void (*end)(const HashState& state, unsigned char* digest);
};

extern const DigestKernel kPlainDigestKernel;
// nullptr if it is not compiled in.
const DigestKernel* digest_kernel_avx2();

// The fastest version for this processor.
const DigestKernel& digest_kernel();

}}}  // namespace holdfast::v0_2::internal
