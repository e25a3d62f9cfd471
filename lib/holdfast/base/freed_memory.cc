#include "holdfast/base/freed_memory.h"

#include <cstdlib>  // says whether it is glibc
#include <limits>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace holdfast::inline v1 {

void keep_freed_memory() noexcept {
#ifdef __GLIBC__
  // A block of its own (mmap) goes back as it is freed. The threshold for those cannot be set above 32 MiB:
  // so there are none.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, 64 << 20);
#endif
}

}  // namespace holdfast::inline v1
