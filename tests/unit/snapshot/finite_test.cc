#include "holdfast/snapshot/finite.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include "holdfast/snapshot/internal/digest_kernel.h"

namespace holdfast::test { namespace {

using internal::DigestKernel;

std::vector<DigestKernel> kernels() {
  std::vector<DigestKernel> all{internal::kPlainDigestKernel};
  if (internal::digest_kernel().digest != all[0].digest) all.push_back(internal::digest_kernel());
  return all;
}

std::vector<std::byte> some_bytes(std::size_t size) {
  std::vector<std::byte> bytes(size);
  std::uint32_t state = 12345;
  for (std::byte& byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<std::byte>(state >> 24 & 0x3f);  // as any float type: finite
  }
  return bytes;
}

template <class T>
bool finite_with(std::size_t count, std::size_t at, T value, DType dtype) {
  std::vector<T> numbers(count, T{1});
  if (at < count) numbers[at] = value;
  return inspect_bytes(std::as_bytes(std::span(numbers)), dtype).finite;
}

// Around every boundary that the kernel has: a vector, a block, a bite.
constexpr std::size_t kSizes[] = {0,    1,    3,    15,    16,    17,    31,     63,     64,     65,   127,
                                  128,  129,  255,  256,   1023,  1024,  4095,   4096,   4097,   4160, 8191,
                                  8192, 8193, 9000, 12287, 65536, 65541, 131072, 200000, 1000003};

TEST(Finite, DigestsAreThoseOfXxh3WhateverIsLookedAt) {
  for (const std::size_t size : kSizes) {
    const std::vector<std::byte> bytes = some_bytes(size);
    XXH128_canonical_t expected;
    XXH128_canonicalFromHash(&expected, XXH3_128bits(bytes.data(), size));
    for (const DigestKernel& kernel : kernels()) {
      for (const int width : {0, 1, 2, 4, 8}) {
        unsigned char digest[16];
        const bool finite =
            kernel.digest(bytes.data(), size, {.bytes = width, .magnitude = 0x7f, .largest = 0x7f}, digest);
        EXPECT_TRUE(finite) << size << " bytes by " << width;
        EXPECT_EQ(std::memcmp(digest, expected.digest, 16), 0) << size << " bytes by " << width;
      }
    }
    EXPECT_EQ(inspect_bytes(bytes, DType::float32).digest, digest_of(bytes));
  }
}

TEST(Finite, ADigestDoesNotDependOnWhereTheFirstBadNumberIs) {
  std::vector<float> numbers(5000, 1.5F);
  for (const std::size_t at : {0U, 1U, 1023U, 1024U, 1025U, 4095U, 4999U}) {
    numbers[at] = std::numeric_limits<float>::quiet_NaN();
    const auto bytes = std::as_bytes(std::span(numbers));
    const Inspected inspected = inspect_bytes(bytes, DType::float32);
    EXPECT_FALSE(inspected.finite) << at;
    EXPECT_EQ(inspected.digest, digest_of(bytes)) << at;
    numbers[at] = 1.5F;
  }
}

TEST(Finite, EveryPlaceIsLookedAtByEveryKernel) {
  constexpr std::size_t kCount = 2100;  // two bites and a rest
  std::vector<float> numbers(kCount, -2.0F);
  for (const DigestKernel& kernel : kernels()) {
    for (std::size_t at = 0; at < kCount; ++at) {
      numbers[at] = -std::numeric_limits<float>::infinity();
      unsigned char digest[16];
      EXPECT_FALSE(kernel.digest(reinterpret_cast<const std::byte*>(numbers.data()), kCount * sizeof(float),
                                 {4, 0x7fffffff, 0x7f7fffff}, digest))
          << at;
      numbers[at] = -2.0F;
    }
  }
}

TEST(Finite, TheLargestNumberOfEachTypeIsFiniteAndTheNextIsNot) {
  using D = DType;
  const struct {
    D dtype;
    std::uint16_t largest;
  } half[] = {{D::float16, 0x7bff}, {D::bfloat16, 0x7f7f}};
  for (const auto& [dtype, largest] : half) {
    for (const std::uint16_t sign : {0x0000, 0x8000}) {
      EXPECT_TRUE(finite_with<std::uint16_t>(3000, 2999, largest | sign, dtype)) << name_of(dtype);
      EXPECT_FALSE(finite_with<std::uint16_t>(3000, 2999, (largest + 1) | sign, dtype)) << name_of(dtype);
      EXPECT_FALSE(finite_with<std::uint16_t>(3000, 7, 0x7fff | sign, dtype)) << name_of(dtype);
    }
  }
  EXPECT_TRUE(finite_with<std::uint8_t>(100, 50, 0xfe, D::float8_e4m3fn));
  EXPECT_FALSE(finite_with<std::uint8_t>(100, 50, 0xff, D::float8_e4m3fn));
  EXPECT_TRUE(finite_with<std::uint8_t>(100, 50, 0xfb, D::float8_e5m2));
  EXPECT_FALSE(finite_with<std::uint8_t>(100, 50, 0xfc, D::float8_e5m2));
  EXPECT_TRUE(finite_with(9, 8, std::numeric_limits<double>::lowest(), D::float64));
  EXPECT_FALSE(finite_with(9, 8, std::numeric_limits<double>::infinity(), D::float64));
  EXPECT_FALSE(finite_with(10, 9, std::numeric_limits<double>::quiet_NaN(), D::complex128));
  EXPECT_TRUE(finite_with(10, 9, std::numeric_limits<float>::max(), D::complex64));
  EXPECT_FALSE(finite_with(10, 9, std::numeric_limits<float>::signaling_NaN(), D::complex64));
}

TEST(Finite, WhereInfinityIsAllowedOnlyNaNIsNotFinite) {
  using D = DType;
  const auto finite = []<class T>(T value, DType dtype) {
    std::vector<T> numbers(3000);
    numbers[2999] = value;
    return inspect_bytes(std::as_bytes(std::span(numbers)), dtype, Infinity::allowed).finite;
  };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(finite(kInfinity, D::float32));
  EXPECT_TRUE(finite(-kInfinity, D::complex64));
  EXPECT_FALSE(finite(std::numeric_limits<float>::quiet_NaN(), D::float32));
  EXPECT_FALSE(finite(std::numeric_limits<float>::signaling_NaN(), D::float32));
  EXPECT_TRUE(finite(-std::numeric_limits<double>::infinity(), D::float64));
  EXPECT_FALSE(finite(std::numeric_limits<double>::quiet_NaN(), D::complex128));
  EXPECT_TRUE(finite(std::uint16_t{0xfc00}, D::float16));
  EXPECT_FALSE(finite(std::uint16_t{0x7c01}, D::float16));
  EXPECT_TRUE(finite(std::uint16_t{0x7f80}, D::bfloat16));
  EXPECT_FALSE(finite(std::uint16_t{0x7f81}, D::bfloat16));
  EXPECT_TRUE(finite(std::uint8_t{0xfc}, D::float8_e5m2));
  EXPECT_FALSE(finite(std::uint8_t{0xfd}, D::float8_e5m2));
  EXPECT_TRUE(finite(std::uint8_t{0x7e}, D::float8_e4m3fn));
  EXPECT_FALSE(finite(std::uint8_t{0xff}, D::float8_e4m3fn));
  EXPECT_TRUE(finite(~std::uint64_t{0}, D::uint64));
}

TEST(Finite, IntegersAreFiniteWhateverTheirBits) {
  for (const DType dtype : {DType::boolean, DType::uint8, DType::int8, DType::int16, DType::int32,
                            DType::int64, DType::uint16, DType::uint32, DType::uint64}) {
    EXPECT_TRUE(finite_with<std::uint64_t>(10, 3, ~std::uint64_t{0}, dtype)) << name_of(dtype);
  }
}

}}  // namespace holdfast::test
