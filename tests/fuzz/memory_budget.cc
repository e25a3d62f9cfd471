#include "memory_budget.h"

#include <sanitizer/allocator_interface.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace holdfast::test {
namespace {

std::atomic<std::int64_t> grown{0};
std::atomic<std::int64_t> allowed{-1};  // -1: nothing is counted

void complain(const char* text, int length) {
  if (length > 0) static_cast<void>(::write(STDERR_FILENO, text, static_cast<std::size_t>(length)));
  std::abort();
}

void account(std::int64_t bytes) {
  const std::int64_t most = allowed.load(std::memory_order_relaxed);
  if (most < 0) return;
  const std::int64_t now = grown.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (bytes <= 0 || now <= most) return;
  allowed = -1;
  char text[160];
  complain(text,
           std::snprintf(
               text, sizeof text,
               "\nThis input asked for %lld bytes at once, and has %lld where it explains at most %lld\n",
               static_cast<long long>(bytes), static_cast<long long>(now), static_cast<long long>(most)));
}

void on_malloc(const volatile void*, std::size_t size) { account(static_cast<std::int64_t>(size)); }

void on_free(const volatile void* pointer) {
  if (pointer == nullptr || allowed.load(std::memory_order_relaxed) < 0) return;
  account(-static_cast<std::int64_t>(__sanitizer_get_allocated_size(pointer)));
}

}  // namespace

MemoryBudget::MemoryBudget(std::uint64_t bytes) {
  static const bool installed = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free) != 0;
  require(installed, "the sanitizer takes no hooks");
  grown = 0;
  allowed = static_cast<std::int64_t>(bytes);
}

MemoryBudget::~MemoryBudget() { allowed = -1; }

void require(bool holds, const char* what) {
  if (holds) return;
  char text[256];
  complain(text, std::snprintf(text, sizeof text, "\nThis must not be: %s\n", what));
}

void account_mapping(std::int64_t bytes) { account(bytes); }

}  // namespace holdfast::test

// The linker sends every call of mmap and munmap here (--wrap).
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
void* __real_mmap(void* address, std::size_t length, int protection, int flags, int fd, off_t offset);
int __real_munmap(void* address, std::size_t length);

void* __wrap_mmap(void* address, std::size_t length, int protection, int flags, int fd, off_t offset) {
  if ((flags & MAP_ANONYMOUS) != 0) holdfast::test::account_mapping(static_cast<std::int64_t>(length));
  return __real_mmap(address, length, protection, flags, fd, offset);
}

int __wrap_munmap(void* address, std::size_t length) {
  holdfast::test::account_mapping(-static_cast<std::int64_t>(length));
  return __real_munmap(address, length);
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
}
