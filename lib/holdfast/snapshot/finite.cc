#include "holdfast/snapshot/finite.h"

#include "holdfast/snapshot/internal/digest_kernel.h"

namespace holdfast::inline v1 {
namespace {

// A float is not finite when its exponent is all ones, that is, when its bits without the sign exceed those
// of the largest finite number.
internal::FloatBits float_bits(DType dtype) {
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
    case DType::float8_e4m3fn:  // no infinities; NaN is all ones
      return {1, 0x7f, 0x7e};
    default:
      return {};
  }
}

}  // namespace

Inspected inspect_bytes(std::span<const std::byte> bytes, DType dtype) {
  unsigned char digest[sizeof(Digest)];
  Inspected inspected;
  inspected.finite = internal::digest_kernel()(bytes.data(), bytes.size(), float_bits(dtype), digest);
  for (std::size_t i = 0; i < sizeof digest; ++i) inspected.digest.bytes[i] = std::byte{digest[i]};
  return inspected;
}

}  // namespace holdfast::inline v1
