#include "holdfast/checkpoint/internal/finite.h"

#include <cstdint>
#include <cstring>

namespace holdfast::inline v1::internal {
namespace {

// A float is finite unless its exponent is all ones, that is, unless its bits without the sign exceed those
// of the largest finite number. Compared as integers in vectors of 16 bytes: 26 GB/s where the plain loop,
// which the compiler does not turn into vectors at -O2, does 6.
template <class Word>
bool none_above(std::span<const std::byte> bytes, Word magnitude, Word largest) {
  using Vector [[gnu::vector_size(16)]] = Word;
  constexpr std::size_t kUnroll = 4;
  constexpr std::size_t kBlock = kUnroll * sizeof(Vector);
  const Vector mask = Vector{} + magnitude;
  const Vector limit = Vector{} + largest;
  const auto block_is_finite = [&](const std::byte* block) {
    Vector above{};
    for (std::size_t i = 0; i < kUnroll; ++i) {
      Vector words;
      std::memcpy(&words, block + i * sizeof words, sizeof words);
      above |= (words & mask) > limit;
    }
    std::uint64_t halves[2];
    std::memcpy(halves, &above, sizeof halves);
    return (halves[0] | halves[1]) == 0;
  };
  std::size_t at = 0;
  for (; at + kBlock <= bytes.size(); at += kBlock) {
    if (!block_is_finite(bytes.data() + at)) return false;
  }
  std::byte rest[kBlock] = {};
  if (at < bytes.size()) std::memcpy(rest, bytes.data() + at, bytes.size() - at);
  return block_is_finite(rest);
}

}  // namespace

bool all_finite(std::span<const std::byte> bytes, DType dtype) {
  switch (dtype) {
    case DType::float16:
      return none_above<std::int16_t>(bytes, 0x7fff, 0x7bff);
    case DType::bfloat16:
      return none_above<std::int16_t>(bytes, 0x7fff, 0x7f7f);
    case DType::float32:
    case DType::complex64:
      return none_above<std::int32_t>(bytes, 0x7fffffff, 0x7f7fffff);
    case DType::float64:
    case DType::complex128:
      return none_above<std::int64_t>(bytes, 0x7fffffffffffffff, 0x7fefffffffffffff);
    case DType::float8_e5m2:
      return none_above<std::int8_t>(bytes, 0x7f, 0x7b);
    case DType::float8_e4m3fn:  // no infinities; NaN is all ones
      return none_above<std::int8_t>(bytes, 0x7f, 0x7e);
    default:
      return true;
  }
}

bool all_finite(const Snapshot& snapshot) {
  const auto& tensors = snapshot.layout->tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!all_finite(snapshot.bytes(i), tensors[i].dtype)) return false;
  }
  return true;
}

}  // namespace holdfast::inline v1::internal
