// The loops behind digest_of and inspect_bytes, once for every machine and once for those with AVX2 (a third
// fewer core-seconds). Which one runs is decided once a process.
//
// Plain types only: the AVX2 source is compiled with other flags, and must not share an inline function of
// the standard library with the rest of the program.
//
// Threads: free functions, pure.
#pragma once

#include <cstddef>
#include <cstdint>

namespace holdfast::inline v1::internal {

// How a float type says that it is not finite: its bits without the sign, as an integer of `bytes` bytes,
// exceed `largest`.
struct FloatBits {
  int bytes = 0;  // 0: not a float, nothing to look at
  std::int64_t magnitude = 0;
  std::int64_t largest = 0;
};

// Writes the canonical XXH3-128 of `size` bytes to `digest` (16 bytes). False when a float is not finite.
using DigestKernel = bool (*)(const std::byte* data, std::size_t size, FloatBits floats,
                              unsigned char* digest);

bool digest_kernel_plain(const std::byte* data, std::size_t size, FloatBits floats, unsigned char* digest);
// nullptr: not compiled in.
DigestKernel digest_kernel_avx2();

// The best that this processor runs.
DigestKernel digest_kernel();

}  // namespace holdfast::inline v1::internal
