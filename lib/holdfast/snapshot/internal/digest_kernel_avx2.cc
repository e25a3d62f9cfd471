#ifdef __AVX2__
#define HOLDFAST_VECTOR_BYTES 32
#include "holdfast/snapshot/internal/digest_kernel_body.h"
#else
#include "holdfast/snapshot/internal/digest_kernel.h"
#endif

namespace holdfast { inline namespace v0_2 { namespace internal {

// This source alone is compiled for AVX2, so it includes nothing with inline functions that others use. The
// linker could take its version of one for the whole program, and an older processor would fail on it.
const DigestKernel* digest_kernel_avx2() {
#ifdef __AVX2__
  return &kKernel;
#else
  return nullptr;
#endif
}

}}}  // namespace holdfast::v0_2::internal
