// The loops of digest_of and inspect_bytes, in two versions: for all machines, and for those with AVX2 (a
// third less processor time). The process chooses once.
//
// Plain types only: the AVX2 source has other compiler flags, and must not share inline functions of the
// standard library with the rest of the program.
// Errors: none. Threads: pure functions.
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

// Writes the canonical XXH3-128 of `size` bytes to `digest` (16 bytes). False if a float is not finite.
using DigestKernel = bool (*)(const std::byte* data, std::size_t size, FloatBits floats,
                              unsigned char* digest);

bool digest_kernel_plain(const std::byte* data, std::size_t size, FloatBits floats, unsigned char* digest);
// nullptr if it is not compiled in.
DigestKernel digest_kernel_avx2();

// The fastest version for this processor.
DigestKernel digest_kernel();

}}}  // namespace holdfast::v0_2::internal
