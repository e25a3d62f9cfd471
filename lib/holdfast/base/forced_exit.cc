#include "holdfast/base/forced_exit.h"

#include <unistd.h>

#include <atomic>

#include "holdfast/base/exit_code.h"

namespace holdfast::inline v1 {
namespace {

// Dekker's handshake, so both are sequentially consistent: either the guard sees the wish, or force_exit sees
// the guard. Plain globals with constant initialisation, because a signal may come before main.
std::atomic<int> guards{0};
std::atomic<bool> wanted{false};
thread_local int depth = 0;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

[[noreturn]] void leave() noexcept { _exit(static_cast<int>(ExitCode::forced)); }

}  // namespace

HoldOffForcedExit::HoldOffForcedExit() noexcept {
  guards.fetch_add(1);
  // A nested one belongs to work that has begun.
  if (depth++ > 0 || !wanted.load()) return;
  // Somebody wants out. Begin nothing new: the last guard, this one or another thread's, ends the process.
  if (guards.fetch_sub(1) == 1) leave();
  while (true) pause();
}

HoldOffForcedExit::~HoldOffForcedExit() {
  --depth;
  if (guards.fetch_sub(1) == 1 && wanted.load()) leave();
}

void force_exit() noexcept {
  wanted.store(true);
  if (guards.load() == 0) leave();
}

}  // namespace holdfast::inline v1
