#include "holdfast/snapshot/shared_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <system_error>
#include <utility>

namespace holdfast { inline namespace v0_2 {
namespace {

// Kept beside the arena's count, so that an Arena costs nothing more.
struct DeleteShared {
  SharedMemory memory;
  void operator()(Arena* arena) const {
    delete arena;
    if (memory.descriptor >= 0) close(memory.descriptor);
  }
};

std::string text_of(const char* call, int code) {
  return std::string(call) + ": " + std::generic_category().message(code);
}

// Under strict accounting the pages of an anonymous file are counted when they are touched. If there is none
// left then, the process gets SIGBUS, where an ordinary mapping is refused at once.
bool counts_strictly() {
  std::ifstream setting("/proc/sys/vm/overcommit_memory");
  int mode = 0;
  return (setting >> mode) && mode == 2;
}

// The kernel applies the limit for files to this one, by a signal.
bool exceeds_file_limit(std::uint64_t size) {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && size > limit.rlim_cur;
}

// In the place of the arena's own memory, which nobody has touched.
bool put_in_place(Arena& arena, int descriptor, int sharing) {
  const std::span<std::byte> place = arena.bytes();
  return mmap(place.data(), arena.capacity(), PROT_READ | PROT_WRITE, sharing | MAP_FIXED, descriptor, 0) !=
         MAP_FAILED;
}

SharedMemory shared_memory_for(Arena& arena) {
  if (arena.size() == 0) return {.descriptor = -1, .why_not = "the image is empty"};
  if (counts_strictly()) return {.descriptor = -1, .why_not = "vm.overcommit_memory is 2"};
  if (exceeds_file_limit(arena.capacity())) {
    return {.descriptor = -1, .why_not = "the limit of file sizes is less than the image (ulimit -f)"};
  }
  const int descriptor = memfd_create("holdfast-image", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) return {.descriptor = -1, .why_not = text_of("memfd_create", errno)};
  const char* failed = nullptr;
  if (ftruncate(descriptor, static_cast<off_t>(arena.capacity())) != 0) {
    failed = "ftruncate";
  } else if (fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    // A file that another process could cut off would end this one by SIGBUS.
    failed = "fcntl(F_ADD_SEALS)";
  } else if (!put_in_place(arena, descriptor, MAP_SHARED)) {
    failed = "mmap";
  }
  if (failed == nullptr) return {.descriptor = descriptor, .why_not = {}};
  std::string why = text_of(failed, errno);
  close(descriptor);
  return {.descriptor = -1, .why_not = std::move(why)};
}

}  // namespace

std::shared_ptr<Arena> make_shared_arena(std::uint64_t size) {
  auto arena = std::make_unique<Arena>(size);
  SharedMemory memory = shared_memory_for(*arena);
  // Where only small pages are shared, the advice that the arena gave has no effect.
  return {arena.release(), DeleteShared{std::move(memory)}};
}

const SharedMemory* shared_memory_of(const std::shared_ptr<Arena>& arena) {
  const auto* const shared = std::get_deleter<DeleteShared>(arena);
  return shared != nullptr ? &shared->memory : nullptr;
}

std::shared_ptr<Arena> map_shared_arena(int descriptor, std::uint64_t size) {
  auto arena = std::make_shared<Arena>(size);
  if (!put_in_place(*arena, descriptor, MAP_PRIVATE)) {
    throw NoImageMemory("another process's image of " + std::to_string(size) +
                        " bytes cannot be mapped: " + text_of("mmap", errno));
  }
  return arena;
}

}}  // namespace holdfast::v0_2
