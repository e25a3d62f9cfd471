// An Arena whose memory other processes of this machine can map, so that they have its image without a copy.
//
//   const auto arena = make_shared_arena(bytes);            // one process reads a checkpoint into it
//   const auto image = map_shared_arena(descriptor, bytes); // another one opened /proc/<pid>/fd/<descriptor>
//
// The memory is an anonymous file of the kernel (memfd_create). It has no name in any folder, is not limited
// by the size of /dev/shm, and ends with the last process that holds it.
//
// Errors: NoImageMemory as Arena. Without such a file the arena's memory is its own, and why_not says why.
// Threads: as Arena.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "holdfast/base/export.h"
#include "holdfast/snapshot/arena.h"

namespace holdfast { inline namespace v0_2 {

struct SharedMemory {
  int descriptor = -1;  // of the anonymous file; -1: there is none
  std::string why_not;  // then: the reason
};

HOLDFAST_EXPORT std::shared_ptr<Arena> make_shared_arena(std::uint64_t size);
// nullptr for an arena that make_shared_arena() did not make.
HOLDFAST_EXPORT const SharedMemory* shared_memory_of(const std::shared_ptr<Arena>& arena);
inline bool is_shared(const std::shared_ptr<Arena>& arena) {
  const SharedMemory* const memory = shared_memory_of(arena);
  return memory != nullptr && memory->descriptor >= 0;
}
// An arena with the bytes of that file, which has at least `size`. Pages are shared until one of the
// processes writes to them: what this process writes, it alone sees. The descriptor may be closed afterwards.
HOLDFAST_EXPORT std::shared_ptr<Arena> map_shared_arena(int descriptor, std::uint64_t size);

}}  // namespace holdfast::v0_2
