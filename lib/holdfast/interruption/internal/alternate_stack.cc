#include "holdfast/interruption/internal/alternate_stack.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

constinit pthread_key_t key = 0;
constinit pthread_once_t key_once = PTHREAD_ONCE_INIT;
constinit bool have_key = false;

std::size_t page() noexcept { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

bool has_alternate_stack() noexcept {
  stack_t current{};
  // If the state cannot be read, leave it alone.
  return sigaltstack(nullptr, &current) != 0 || (current.ss_flags & SS_DISABLE) == 0;
}

extern "C" void holdfast_release_alternate_stack(void* stack) {
  stack_t current{};
  if (sigaltstack(nullptr, &current) == 0 && current.ss_sp == stack) {
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    // Fails if the thread ends inside a handler, which still uses this stack. Then leak it.
    if (sigaltstack(&none, nullptr) != 0) return;
  }
  free_alternate_stack(stack);
}

extern "C" void holdfast_make_key() {
  have_key = pthread_key_create(&key, holdfast_release_alternate_stack) == 0;
}

}  // namespace

void* make_alternate_stack() noexcept {
  void* const memory = mmap(nullptr, page() + kAlternateStackSize, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  // A guard page: an overflow of the handler's stack ends the process instead of changing other memory.
  mprotect(memory, page(), PROT_NONE);
  return static_cast<std::byte*>(memory) + page();
}

void free_alternate_stack(void* stack) noexcept {
  munmap(static_cast<std::byte*>(stack) - page(), page() + kAlternateStackSize);
}

void adopt_alternate_stack(void* stack) noexcept {
  // A thread's key frees its stack at its end; the main thread's stack lives as long as the process.
  // Before main() only the main thread runs, and a key made now would take the first one from other
  // libraries.
  const bool is_main = gettid() == getpid();
  if (!is_main) pthread_once(&key_once, holdfast_make_key);
  stack_t ours{};
  ours.ss_sp = stack;
  ours.ss_size = kAlternateStackSize;
  const bool released_later = is_main || (have_key && pthread_setspecific(key, stack) == 0);
  // Another library's stack stays (Go, Java and sanitizers set one).
  if (released_later && !has_alternate_stack() && sigaltstack(&ours, nullptr) == 0) return;
  if (!is_main && have_key) pthread_setspecific(key, nullptr);
  free_alternate_stack(stack);
}

void give_this_thread_an_alternate_stack() noexcept {
  if (has_alternate_stack()) return;
  if (void* const stack = make_alternate_stack()) adopt_alternate_stack(stack);
}

}}}  // namespace holdfast::v0_2::internal
