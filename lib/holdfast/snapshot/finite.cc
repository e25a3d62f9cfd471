#include "holdfast/snapshot/finite.h"

#include "holdfast/snapshot/internal/float_bits.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// A float is not finite if its exponent is all ones: its bits without the sign exceed those of the largest
// finite number. It is a NaN if they exceed those of infinity.
internal::FloatBits finite_bits(DType dtype) {
  switch (dtype) {
    case DType::float16:
      return {2, 0x7fff, 0x7bff};
    case DType::bfloat16:
      return {2, 0x7fff, 0x7f7f};
    case DType::float32:
    case DType::complex64:
      return {4, 0x7fffffff, 0x7f7fffff};
    case DType::float64:
    case DType::complex128:
      return {8, 0x7fffffffffffffff, 0x7fefffffffffffff};
    case DType::float8_e5m2:
      return {1, 0x7f, 0x7b};
    case DType::float8_e4m3fn:  // has no infinity; all ones is NaN
      return {1, 0x7f, 0x7e};
    default:
      // Integers and truth values are always finite; zero bytes mean that nothing is looked at.
      return {};
  }
}

}  // namespace

internal::FloatBits internal::float_bits(DType dtype, Infinity infinity) {
  FloatBits bits = finite_bits(dtype);
  const bool has_infinity = bits.bytes != 0 && dtype != DType::float8_e4m3fn;
  // The bit pattern after the largest finite number is that of infinity.
  if (infinity == Infinity::allowed && has_infinity) ++bits.largest;
  return bits;
}

Inspected inspect_bytes(std::span<const std::byte> bytes, DType dtype, Infinity infinity) {
  unsigned char digest[sizeof(Digest)];
  Inspected inspected;
  inspected.finite = internal::digest_kernel().digest(bytes.data(), bytes.size(),
                                                      internal::float_bits(dtype, infinity), digest);
  for (std::size_t i = 0; i < sizeof digest; ++i) inspected.digest.bytes[i] = std::byte{digest[i]};
  return inspected;
}

}}  // namespace holdfast::v0_2
