// Signal handlers run on stacks of their own, whatever a thread's stack pointer says at that moment.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <thread>
#include <vector>

#include "holdfast/interruption/signal_source.h"
#include "support/child_process.h"

namespace holdfast { namespace {

using test::ChildProcess;

std::uintptr_t seen_at = 0;
// Not the address of a variable: a sanitizer keeps those elsewhere.
void look(int) { seen_at = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)); }

// Where this thread's handlers are to run.
stack_t alternate_stack() {
  stack_t current{};
  sigaltstack(nullptr, &current);
  return current;
}

bool handler_ran_there() {
  const stack_t stack = alternate_stack();
  const auto begin = reinterpret_cast<std::uintptr_t>(stack.ss_sp);
  return (stack.ss_flags & SS_DISABLE) == 0 && seen_at >= begin && seen_at < begin + stack.ss_size;
}

TEST(AlternateStack, TheThreadThatListensHasOne) {
  ChildProcess child([] {
    std::signal(SIGTERM, look);
    const SignalSource source;
    raise(SIGTERM);
    return seen_at == 0 ? 1 : handler_ran_there() ? 0 : 2;
  });
  EXPECT_EQ(child.wait().exit_code, 0)
      << "1: the earlier handler did not run; 2: it ran on the thread's stack";
}

TEST(AlternateStack, AForkedChildHasItToo) {
  ChildProcess child([] {
    std::signal(SIGTERM, look);
    const SignalSource source;
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      const SignalSource own;
      raise(SIGTERM);
      _exit(handler_ran_there() ? 0 : 1);
    }
    int status = 0;
    waitpid(grandchild, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 3;
  });
  EXPECT_EQ(child.wait().exit_code, 0);
}

TEST(AlternateStack, OneOfSomebodyElseStays) {
  ChildProcess child([] {
    std::vector<char> theirs(std::size_t{64} * 1024);
    stack_t stack{};
    stack.ss_sp = theirs.data();
    stack.ss_size = theirs.size();
    if (sigaltstack(&stack, nullptr) != 0) return 1;
    const SignalSource source;
    const bool kept = alternate_stack().ss_sp == theirs.data();
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, nullptr);
    return kept ? 0 : 2;
  });
  EXPECT_EQ(child.wait().exit_code, 0);
}

// Sanitizers give each thread a smaller one of their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// The probe links holdfast_early_signals.
int run_stack_probe(const char* what) {
  execl(HOLDFAST_STACK_PROBE, HOLDFAST_STACK_PROBE, what, static_cast<char*>(nullptr));
  return 96;
}

TEST(AlternateStack, MainHasOneBeforeTheFirstConstructor) {
  EXPECT_EQ(ChildProcess([] { return run_stack_probe("main"); }).wait().exit_code, 0);
}

TEST(AlternateStack, EveryThreadHasOneFromItsFirstInstruction) {
  EXPECT_EQ(ChildProcess([] { return run_stack_probe("threads"); }).wait().exit_code, 0);
}

TEST(AlternateStack, ItGoesAwayWithItsThread) {
  EXPECT_EQ(ChildProcess([] { return run_stack_probe("released"); }).wait().exit_code, 0);
}

#ifdef __x86_64__
TEST(AlternateStack, AHandlerLeavesMemoryBeneathAnyStackPointerAlone) {
  EXPECT_EQ(ChildProcess([] { return run_stack_probe("heap"); }).wait().exit_code, 0);
}
#endif
#endif

}}  // namespace holdfast
