// Checks that a call does almost nothing: counts the thread's allocations, and detects whether it enters the
// kernel.
//
// Allocations are counted in a program that has HOLDFAST_COUNT_ALLOCATIONS in one of its sources, which
// defines operator new. The kernel's syscall user dispatch (Linux 5.11, x86-64) catches system calls and
// costs nothing without them. Reading the clock through the vDSO is no system call.
//
// Threads: each counts its own.
#pragma once

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace holdfast::test {

inline thread_local std::int64_t allocations_here = 0;

// Counts calls after watch(), at most one per watch(): the first is made, and ends the watch.
class KernelEntries {
 public:
  // False if this machine cannot detect them.
  static bool prepare() {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    constexpr int kSetDispatch = 59;  // PR_SET_SYSCALL_USER_DISPATCH; older headers lack it
    constexpr unsigned long kOn = 1;
    struct sigaction action = {};
    action.sa_sigaction = &caught;
    action.sa_flags = SA_SIGINFO;
    return sigaction(SIGSYS, &action, nullptr) == 0 && prctl(kSetDispatch, kOn, 0UL, 0UL, &gate_) == 0;
#else
    return false;
#endif
  }
  static void watch() { gate_ = kCaught; }
  static void leave() { gate_ = kPassed; }
  static std::int64_t count() { return count_; }
  static long last() { return last_; }  // its number

 private:
  static constexpr char kPassed = 0;
  static constexpr char kCaught = 1;

#ifdef __x86_64__
  static void caught(int /*signal*/, siginfo_t* /*info*/, void* context) {
    gate_ = kPassed;
    auto* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    last_ = static_cast<long>(registers[REG_RAX]);
    ++count_;
    const long result = syscall(last_, registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
                                registers[REG_R10], registers[REG_R8], registers[REG_R9]);
    registers[REG_RAX] = result == -1 ? -errno : result;
  }
#endif

  static inline thread_local volatile char gate_ = kPassed;
  static inline thread_local std::int64_t count_ = 0;
  static inline thread_local long last_ = 0;
};

}  // namespace holdfast::test

// NOLINTBEGIN(cppcoreguidelines-no-malloc)
#define HOLDFAST_COUNT_ALLOCATIONS                                                                       \
  static void* counted_allocation(std::size_t bytes, std::size_t alignment) {                            \
    ++holdfast::test::allocations_here;                                                                  \
    const std::size_t whole = (bytes + alignment - 1) / alignment * alignment;                           \
    void* const memory = std::aligned_alloc(alignment, whole == 0 ? alignment : whole);                  \
    if (memory == nullptr) throw std::bad_alloc();                                                       \
    return memory;                                                                                       \
  }                                                                                                      \
  void* operator new(std::size_t bytes) { return counted_allocation(bytes, alignof(std::max_align_t)); } \
  void* operator new(std::size_t bytes, std::align_val_t alignment) {                                    \
    return counted_allocation(bytes, static_cast<std::size_t>(alignment));                               \
  }                                                                                                      \
  void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {                                \
    try {                                                                                                \
      return counted_allocation(bytes, alignof(std::max_align_t));                                       \
    } catch (const std::bad_alloc&) {                                                                    \
      return nullptr;                                                                                    \
    }                                                                                                    \
  }                                                                                                      \
  void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {    \
    try {                                                                                                \
      return counted_allocation(bytes, static_cast<std::size_t>(alignment));                             \
    } catch (const std::bad_alloc&) {                                                                    \
      return nullptr;                                                                                    \
    }                                                                                                    \
  }                                                                                                      \
  void operator delete(void* memory) noexcept { std::free(memory); }                                     \
  void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }                        \
  void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }                   \
  void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
// NOLINTEND(cppcoreguidelines-no-malloc)
