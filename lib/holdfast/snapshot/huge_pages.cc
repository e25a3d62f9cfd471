#include "holdfast/snapshot/huge_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>

#include "holdfast/base/round_up.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// What an allocator keeps between two neighbours: its own words, and the rest of a page.
constexpr std::uintptr_t kGap = 8192;

// Whole huge pages only: what lies beside them belongs to others.
void advise(std::uintptr_t begin, std::uintptr_t end) noexcept {
  begin = round_up(begin, kHugePage);
  end -= end % kHugePage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace

void advise_huge_pages(std::vector<std::span<std::byte>> memory) noexcept {
  // By address, so that neighbours become one range: a tensor below 2 MiB may contain no whole huge page.
  std::sort(memory.begin(), memory.end(), [](const auto& a, const auto& b) { return a.data() < b.data(); });
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  for (const std::span<std::byte> one : memory) {
    const auto at = reinterpret_cast<std::uintptr_t>(one.data());
    if (at > end + kGap) {
      advise(begin, end);
      begin = at;
    }
    end = at + one.size();
  }
  advise(begin, end);
}

}}  // namespace holdfast::v0_2
