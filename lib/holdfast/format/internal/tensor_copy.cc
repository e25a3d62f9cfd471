#include "holdfast/format/internal/tensor_copy.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "holdfast/base/error.h"
#include "holdfast/base/utf8.h"
#include "holdfast/format/internal/little_endian.h"
#include "holdfast/format/internal/segments.h"
#include "holdfast/format/layout.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// The digest's pieces are also the units of transfer, so each piece is hashed in the buffer before it is
// written.
static_assert(kDigestPiece == kTransferBlock);

// To the nearest value, ties to even, as PyTorch rounds. A NaN stays a NaN.
std::uint16_t bfloat16_of(float value) {
  auto bits = std::bit_cast<std::uint32_t>(value);
  // Rounding could carry into the exponent and turn a NaN into infinity, so only set the quiet bit.
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16U | 0x40U);
  // Adds just below half, and exactly half if the kept part is odd: ties go to even.
  bits += 0x7FFFU + (bits >> 16U & 1U);
  return static_cast<std::uint16_t>(bits >> 16U);
}

// Rounds a double to a float that rounds on to bfloat16 as the double itself would: the lowest bit says
// whether anything was cut off (round to odd).
float sticky_float(double value) {
  const auto near = static_cast<float>(value);
  if (std::isnan(value) || static_cast<double>(near) == value) return near;
  if (std::isinf(near)) return near;
  auto bits = std::bit_cast<std::uint32_t>(near);
  // The conversion rounded away from zero; step back before the sticky bit is set.
  if (std::abs(static_cast<double>(near)) > std::abs(value)) --bits;
  return std::bit_cast<float>(bits | 1U);
}

float float_of_half(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16U;
  const std::uint32_t exponent = half >> 10U & 0x1FU;
  const std::uint32_t fraction = half & 0x3FFU;
  if (exponent == 0) {
    // Subnormal: no hidden bit, and the exponent of the smallest normal number.
    const float small = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -small : small;
  }
  // 112 is the difference of the two biases, 127 and 15.
  const std::uint32_t wide = exponent == 0x1F ? 0xFFU : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23U | fraction << 13U);
}

void convert(DType from, std::span<const std::byte> source, std::span<std::byte> to) {
  const std::size_t size = size_of(from);
  for (std::size_t i = 0; i < source.size() / size; ++i) {
    float value = 0;
    if (from == DType::float32) {
      value = std::bit_cast<float>(get_little_endian<std::uint32_t>(source, i * size));
    } else if (from == DType::float64) {
      value = sticky_float(std::bit_cast<double>(get_little_endian<std::uint64_t>(source, i * size)));
    } else {
      value = float_of_half(get_little_endian<std::uint16_t>(source, i * size));
    }
    put_little_endian(to, 2 * i, bfloat16_of(value));
  }
}

}  // namespace

bool can_export_as(DType wanted) { return wanted == DType::bfloat16; }

DType exported_dtype(DType from, std::optional<DType> wanted) {
  if (!wanted) return from;
  if (!can_export_as(*wanted)) throw Error("tensors can be written as bfloat16 alone");
  const bool converts = from == DType::float16 || from == DType::float32 || from == DType::float64;
  return converts ? *wanted : from;
}

std::optional<Rejection> copy_tensor(const File& from, const IndexedTensor& tensor,
                                     std::optional<DType> wanted, ReadMode mode, const NextBytes& next) {
  const DType was = tensor.spec.dtype;
  const DType becomes = exported_dtype(was, wanted);
  const std::uint64_t length = tensor.spec.bytes();
  // A scratch piece only if the bytes change; otherwise the caller's buffer takes them directly.
  Arena scratch(becomes == was ? 0 : std::min(length, kDigestPiece));
  std::vector<Digest> digests;
  for (std::uint64_t done = 0; done < length; done += kDigestPiece) {
    const std::uint64_t size = std::min(length - done, kDigestPiece);
    const std::span<std::byte> to = next(size / size_of(was) * size_of(becomes));
    const std::span<std::byte> piece = becomes == was ? to : scratch.bytes().first(size);
    const std::uint64_t at = tensor.offset + done;
    if (read_bytes(from, mode, piece, at) < size) return damaged("the file became shorter while it was read");
    digests.push_back(digest_of(piece));
    if (becomes != was) convert(was, piece, to);
  }
  // Written first, verified last: the caller discards its file if this fails.
  if (combine_digests(digests) == tensor.digest) return std::nullopt;
  return damaged("tensor " + printable(tensor.spec.name) + " (bytes " + std::to_string(tensor.offset) + ".." +
                 std::to_string(tensor.offset + length) + "): digest differs");
}

}}}  // namespace holdfast::v0_2::internal
