// The alignment that O_DIRECT requires for an open file, if the kernel reports it (statx, since Linux 6.1).
//
// Errors: none. Threads: any; one system call.
#pragma once

#include <cstdint>

namespace holdfast { inline namespace v0_2 { namespace internal {

struct DirectAlignment {
  bool known = false;
  std::uint32_t memory = 0;  // both 0: O_DIRECT is not supported for this file
  std::uint32_t offset = 0;
};

DirectAlignment direct_alignment(int fd);

// True if O_DIRECT accepts pages: multiples of 4096 bytes at multiples of 4096 from 4096-aligned memory. True
// also if the alignment is unknown; a refused write then shows the truth.
bool takes_pages(const DirectAlignment& alignment);

}}}  // namespace holdfast::v0_2::internal
