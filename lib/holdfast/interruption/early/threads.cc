// Gives every new thread of the process an alternate stack for signal handlers before its first instruction:
// the pools of OpenMP and LibTorch, the program's threads, those of libraries. The kernel may deliver a
// signal to any of them if the main thread blocks it or has one pending.
//
// A program's pthread_create takes precedence over the C library's for all callers. Threads made by the bare
// clone() system call, and the C library's own helper threads, bypass it.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>

#include "holdfast/interruption/internal/alternate_stack.h"

namespace {

using holdfast::internal::adopt_alternate_stack;
using holdfast::internal::free_alternate_stack;
using holdfast::internal::make_alternate_stack;

using Routine = void* (*)(void*);
using Create = int (*)(pthread_t*, const pthread_attr_t*, Routine, void*);

// Stored in the new thread's alternate stack, because malloc() itself may create threads.
struct Start {
  Routine routine;
  void* argument;
};

constinit std::atomic<Create> next_create{nullptr};

Create next() noexcept {
  // Acquire pairs with the release below. Two threads may both look it up and find the same.
  Create found = next_create.load(std::memory_order_acquire);
  if (found != nullptr) return found;
  found = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  next_create.store(found, std::memory_order_release);
  return found;
}

extern "C" void* holdfast_begin_thread(void* stack) {
  const Start start = *static_cast<const Start*>(stack);
  adopt_alternate_stack(stack);
  return start.routine(start.argument);
}

}  // namespace

extern "C" [[gnu::visibility("default")]] int pthread_create(pthread_t* thread,
                                                             const pthread_attr_t* attributes,
                                                             Routine routine, void* argument) noexcept {
  const Create create = next();
  // EAGAIN is what pthread_create() may return; the caller knows how to handle it.
  if (create == nullptr) return EAGAIN;
  void* const stack = make_alternate_stack();
  // Without memory for a stack the thread starts as usual. Signals then use its normal stack.
  if (stack == nullptr) return create(thread, attributes, routine, argument);
  *static_cast<Start*>(stack) = {.routine = routine, .argument = argument};
  const int error = create(thread, attributes, holdfast_begin_thread, stack);
  if (error != 0) free_alternate_stack(stack);
  return error;
}
