#include "failing_memory.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>

namespace holdfast::test::memory {
namespace {

std::atomic<bool> armed{false};
std::atomic<std::uint64_t> requests{0};
std::atomic<std::uint64_t> refused{0};
std::atomic<std::uint64_t> refused_elsewhere{0};
Plan plan;  // changes only while nothing is armed
thread_local int exempt = 0;
thread_local bool arming = false;

bool refuses() noexcept {
  if (!armed.load(std::memory_order_acquire) || exempt > 0) return false;
  if (plan.this_thread_only && !arming) return false;
  const std::uint64_t number = ++requests;
  if (plan.nth == 0 || (plan.for_ever ? number < plan.nth : number != plan.nth)) return false;
  ++refused;
  if (!arming) ++refused_elsewhere;
  return true;
}

void* take(std::size_t size) noexcept {
  return refuses() ? nullptr : std::malloc(std::max<std::size_t>(size, 1));
}

void* take(std::size_t size, std::align_val_t alignment) noexcept {
  if (refuses()) return nullptr;
  void* memory = nullptr;
  const auto least = std::max(static_cast<std::size_t>(alignment), sizeof(void*));
  return posix_memalign(&memory, least, std::max<std::size_t>(size, 1)) == 0 ? memory : nullptr;
}

void* or_throw(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void arm(Plan wanted) {
  plan = wanted;
  requests = refused = refused_elsewhere = 0;
  arming = true;
  armed.store(true, std::memory_order_release);
}

bool is_armed() { return armed.load(std::memory_order_acquire); }

Asked disarm() {
  armed.store(false, std::memory_order_release);
  arming = false;
  return {requests, refused, refused_elsewhere};
}

Exempt::Exempt() { ++exempt; }
Exempt::~Exempt() { --exempt; }

}  // namespace holdfast::test::memory

using holdfast::test::memory::or_throw;
using holdfast::test::memory::take;

void* operator new(std::size_t size) { return or_throw(take(size)); }
void* operator new[](std::size_t size) { return or_throw(take(size)); }
void* operator new(std::size_t size, const std::nothrow_t& /*tag*/) noexcept { return take(size); }
void* operator new[](std::size_t size, const std::nothrow_t& /*tag*/) noexcept { return take(size); }
void* operator new(std::size_t size, std::align_val_t alignment) { return or_throw(take(size, alignment)); }
void* operator new[](std::size_t size, std::align_val_t alignment) { return or_throw(take(size, alignment)); }
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t& /*tag*/) noexcept {
  return take(size, alignment);
}
void* operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t& /*tag*/) noexcept {
  return take(size, alignment);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*size*/) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t /*size*/) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t& /*tag*/) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t& /*tag*/) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t /*alignment*/) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*size*/, std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t /*size*/, std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t /*alignment*/, const std::nothrow_t& /*tag*/) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::align_val_t /*alignment*/, const std::nothrow_t& /*tag*/) noexcept {
  std::free(memory);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// The images of checkpoints come from here.
extern "C" void* mmap(void* address, std::size_t length, int protection, int flags, int descriptor,
                      off_t offset) noexcept {
  if ((flags & MAP_ANONYMOUS) != 0 && holdfast::test::memory::refuses()) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, length, protection, flags, descriptor, offset));
}
#endif
