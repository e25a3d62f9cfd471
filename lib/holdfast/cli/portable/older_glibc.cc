// Functions that the static libgcc and libstdc++ of g++ 12 take from glibc 2.35 and 2.36, for machines with
// an older one.
#include <dlfcn.h>
#include <link.h>
#include <sys/random.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#if __GLIBC_PREREQ(2, 35)

namespace {

struct Search {
  std::uintptr_t address;
  dl_find_object* result;
};

int look_into(dl_phdr_info* info, std::size_t, void* data) {
  const auto& search = *static_cast<Search*>(data);
  std::uintptr_t first = UINTPTR_MAX;
  std::uintptr_t last = 0;
  std::uintptr_t frames = 0;
  bool inside = false;
  for (ElfW(Half) i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    const std::uintptr_t from = info->dlpi_addr + header.p_vaddr;
    const std::uintptr_t to = from + header.p_memsz;
    if (header.p_type == PT_GNU_EH_FRAME) frames = from;
    if (header.p_type != PT_LOAD) continue;
    first = std::min(first, from);
    last = std::max(last, to);
    inside = inside || (search.address >= from && search.address < to);
  }
  if (!inside || frames == 0) return 0;
  *search.result = {};
  search.result->dlfo_map_start = reinterpret_cast<void*>(first);
  search.result->dlfo_map_end = reinterpret_cast<void*>(last);
  search.result->dlfo_eh_frame = reinterpret_cast<void*>(frames);
  return 1;
}

}  // namespace

// Where exceptions are unwound: the tables of the object that an address lies in.
extern "C" int _dl_find_object(void* address, dl_find_object* result) noexcept {
  Search search{reinterpret_cast<std::uintptr_t>(address), result};
  return dl_iterate_phdr(look_into, &search) == 1 ? 0 : -1;
}

#endif

#if __GLIBC_PREREQ(2, 36)

// For std::random_device.
extern "C" std::uint32_t arc4random() noexcept {
  std::uint32_t value = 0;
  // A signal may interrupt it while the kernel's pool is not ready.
  while (getrandom(&value, sizeof value, 0) != sizeof value) {
  }
  return value;
}

#endif
