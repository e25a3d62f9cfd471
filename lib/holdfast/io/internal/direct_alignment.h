// What O_DIRECT asks of an open file, as far as the kernel tells (statx, Linux 6.1 on).
//
// Threads: pure but for one system call.
#pragma once

#include <cstdint>

namespace holdfast::inline v1::internal {

struct DirectAlignment {
  bool known = false;
  std::uint32_t memory = 0;  // both 0: O_DIRECT is not supported for this file
  std::uint32_t offset = 0;
};

DirectAlignment direct_alignment(int fd);

// Whether transfers of multiples of 4096 at multiples of 4096 from 4096-aligned memory will do. Where nothing
// is known: yes, and a write that is refused shows otherwise.
bool takes_pages(const DirectAlignment& alignment);

}  // namespace holdfast::inline v1::internal
