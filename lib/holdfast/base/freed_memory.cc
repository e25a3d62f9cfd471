#include "holdfast/base/freed_memory.h"

#include <cstdlib>  // defines __GLIBC__
#include <limits>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace holdfast { inline namespace v0_2 {

void keep_freed_memory() noexcept {
#ifdef __GLIBC__
  // free() returns an mmap'ed block to the system at once. glibc caps M_MMAP_THRESHOLD at 32 MiB, so a higher
  // threshold does not help; only zero such blocks does.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  // Grows the heap in steps of 64 MiB, so that the first step makes fewer system calls.
  mallopt(M_TOP_PAD, 64 << 20);
#endif
}

}}  // namespace holdfast::v0_2
