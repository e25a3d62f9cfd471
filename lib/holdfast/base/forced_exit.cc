#include "holdfast/base/forced_exit.h"

#include <unistd.h>

#include <atomic>

#include "holdfast/base/exit_code.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// Dekker's handshake: with sequential consistency either the guard sees `wanted`, or force_exit() sees the
// guard. Plain globals with constant initialisation, because a signal may arrive before main().
std::atomic<int> guards{0};
std::atomic<bool> wanted{false};
thread_local int depth = 0;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

// _exit(), because exit() runs destructors, which is unsafe in a signal handler.
[[noreturn]] void leave() noexcept { _exit(static_cast<int>(ExitCode::forced)); }

}  // namespace

HoldOffForcedExit::HoldOffForcedExit() noexcept {
  guards.fetch_add(1);
  // A nested guard belongs to work that has begun: it must be able to finish.
  if (depth++ > 0 || !wanted.load()) return;
  // Begin nothing new. The last guard, this one or another thread's, ends the process.
  if (guards.fetch_sub(1) == 1) leave();
  // The last guard ends the process while this thread sleeps; the loop outlives wake-ups by other signals.
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

}}  // namespace holdfast::v0_2
