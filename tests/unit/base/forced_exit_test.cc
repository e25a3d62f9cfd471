#include "holdfast/base/forced_exit.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

namespace holdfast { namespace {

// Runs `work` in a child process; its exit code, or -1.
int exit_code_of(const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    work();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ForcedExit, EndsAtOnceWithoutAGuard) {
  EXPECT_EQ(exit_code_of([] {
              force_exit();
              _exit(1);
            }),
            130);
}

TEST(ForcedExit, WaitsForTheOutermostGuard) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const int code = exit_code_of([&] {
    {
      const HoldOffForcedExit outer;
      force_exit();
      { const HoldOffForcedExit nested; }
      (void)!write(pipe_ends[1], "x", 1);
    }
    (void)!write(pipe_ends[1], "y", 1);
  });
  EXPECT_EQ(code, 130);
  char seen[4];
  EXPECT_EQ(read(pipe_ends[0], seen, sizeof seen), 1) << "the guarded work ends, what follows does not begin";
  EXPECT_EQ(seen[0], 'x');
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST(ForcedExit, AnotherThreadBeginsNothingNew) {
  const int code = exit_code_of([] {
    std::atomic<bool> begun{false};
    std::thread other;
    {
      const HoldOffForcedExit guard;
      force_exit();
      other = std::thread([&] {
        const HoldOffForcedExit late;
        begun = true;
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (begun) _exit(1);
    }
    _exit(2);
  });
  EXPECT_EQ(code, 130);
}

TEST(ForcedExit, GuardsAloneChangeNothing) {
  EXPECT_EQ(exit_code_of([] {
              const HoldOffForcedExit one;
              const HoldOffForcedExit two;
            }),
            0);
}

}}  // namespace holdfast
