#include "holdfast/snapshot/arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <limits>
#include <system_error>

#include "holdfast/base/error.h"
#include "holdfast/base/round_up.h"
#include "holdfast/base/text.h"
#include "holdfast/snapshot/huge_pages.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::uint64_t kPage = 4096;

[[noreturn]] void refuse(std::uint64_t size, int code) {
  throw NoImageMemory(
      "no memory for an image of " + format_bytes(size) + " (" + std::generic_category().message(code) +
      "): the training state needs one copy in host memory; use a machine with more memory or a "
      "smaller model, or raise the process's limit (ulimit -v, the container's memory)");
}

}  // namespace

Arena::Arena(std::uint64_t size) : size_(size) {
  // Keeps the sums below from overflowing.
  if (size > std::numeric_limits<std::uint64_t>::max() / 4) refuse(size, ENOMEM);
  capacity_ = round_up(size, kPage);
  const bool huge = size > kHugePage;
  // Maps whole huge pages, so that the last part of the image lies on one too.
  // At least a page, because mmap() refuses a length of 0.
  mapped_ = huge ? round_up(size, kHugePage) : round_up(size == 0 ? 1 : size, kPage);

  // mmap() reserves addresses only, so the extra part costs no memory before it is touched.
  const std::uint64_t asked = huge ? mapped_ + kHugePage : mapped_;
  void* const raw = mmap(nullptr, asked, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) refuse(size, errno);
  data_ = static_cast<std::byte*>(raw);
  if (!huge) return;

  // The system aligns to 4096 only, so one more huge page was mapped; cut off what is not needed.
  const std::uint64_t before = (kHugePage - reinterpret_cast<std::uintptr_t>(raw) % kHugePage) % kHugePage;
  const std::uint64_t after = kHugePage - before;
  if (before != 0) munmap(raw, before);
  data_ += before;
  if (after != 0) munmap(data_ + mapped_, after);
  // A hint only: without huge pages the kernel uses small ones.
  madvise(data_, mapped_, MADV_HUGEPAGE);
}

Arena::~Arena() {
  // The companion uses the memory (it may have page-locked it), so it must go before the mapping.
  companion_.reset();
  munmap(data_, mapped_);
}

}}  // namespace holdfast::v0_2
