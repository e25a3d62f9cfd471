#define HOLDFAST_VECTOR_BYTES 16
#include "holdfast/snapshot/internal/digest_kernel.h"

#include "holdfast/snapshot/internal/digest_kernel_body.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

bool has_avx2() {
#if defined(__x86_64__)
  // Required before __builtin_cpu_supports() when a constructor before main() may call this.
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") != 0;
#else
  return false;
#endif
}

}  // namespace

const DigestKernel kPlainDigestKernel = kKernel;

const DigestKernel& digest_kernel() {
  static const DigestKernel* const best =
      has_avx2() && digest_kernel_avx2() != nullptr ? digest_kernel_avx2() : &kPlainDigestKernel;
  return *best;
}

}}}  // namespace holdfast::v0_2::internal
