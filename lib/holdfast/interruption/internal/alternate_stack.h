// A stack of its own for signal handlers (sigaltstack), for each thread. Without it the kernel writes a
// handler's frame below the stack pointer. oneDNN's matrix products keep that pointer in a heap buffer for a
// while, so a handler would overwrite the training's memory.
//
// An alternate stack that other code has given to a thread stays. Sanitizers never instrument this code,
// because it runs before they are ready.
// Errors: none; without memory a thread keeps what it has. Threads: each call affects the calling thread.
#pragma once

#include <cstddef>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// Large enough for other code's handlers, which ours call (the program's own SIGTERM handler). Untouched
// pages cost nothing.
inline constexpr std::size_t kAlternateStackSize = std::size_t{256} * 1024;

// Memory for one stack, above a guard page that turns an overflow into a crash. nullptr: no memory. The
// caller may use its first bytes until it is adopted.
HOLDFAST_EXPORT void* make_alternate_stack() noexcept;
HOLDFAST_EXPORT void free_alternate_stack(void* stack) noexcept;
// From now on this thread's handlers run on `stack`. It is freed with the thread, or at once if the thread
// has an alternate stack already.
HOLDFAST_EXPORT void adopt_alternate_stack(void* stack) noexcept;

// Makes and adopts a stack if this thread has none. The main thread's stack lives as long as the process.
void give_this_thread_an_alternate_stack() noexcept;

}}}  // namespace holdfast::v0_2::internal
