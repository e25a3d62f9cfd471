#include "holdfast/io/internal/direct_alignment.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstring>

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// From the kernel's interface, because older headers lack it: the request mask, and the offsets in `struct
// statx` (256 bytes in every version) of the result mask and of the two alignments.
constexpr unsigned kStatxDirectAlignment = 0x2000;
constexpr std::size_t kStatxSize = 256;  // struct statx of Linux 6.1, which older headers lack
constexpr std::size_t kMaskAt = 0;
constexpr std::size_t kMemoryAt = 0x98;  // stx_dio_mem_align
constexpr std::size_t kOffsetAt = 0x9c;  // stx_dio_offset_align
// What every writer of this library uses for addresses, offsets and lengths.
constexpr std::uint32_t kPage = 4096;

}  // namespace

DirectAlignment direct_alignment(int fd) {
  alignas(std::uint64_t) std::array<std::byte, kStatxSize> found{};
  // An older kernel fails with ENOSYS: the alignment stays unknown, and the first write decides.
  if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, kStatxDirectAlignment, found.data()) != 0) return {};
  const auto field = [&](std::size_t at) {
    // memcpy, because the buffer has no type that the language would let us read in place.
    std::uint32_t value = 0;
    std::memcpy(&value, found.data() + at, sizeof value);
    return value;
  };
  if ((field(kMaskAt) & kStatxDirectAlignment) == 0) return {};
  return {.known = true, .memory = field(kMemoryAt), .offset = field(kOffsetAt)};
}

bool takes_pages(const DirectAlignment& alignment) {
  // Unknown counts as yes: a file system that refuses the write shows it, and write_at() then goes around.
  if (!alignment.known) return true;
  // The kernel reports zeros for a file on which O_DIRECT never works.
  if (alignment.memory == 0 || alignment.offset == 0) return false;
  return kPage % alignment.memory == 0 && kPage % alignment.offset == 0;
}

}}}  // namespace holdfast::v0_2::internal
