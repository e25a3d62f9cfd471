// As process 1, a container's own: the kernel drops every signal that such a process has no handler for, so a
// run that did not take them would hear nothing until SIGKILL.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "support/child_process.h"

namespace holdfast { namespace {

using test::ChildProcess;

constexpr int kNotAllowed = 97;

volatile pid_t container = 0;
void pass_on(int signal) { kill(container, signal); }

// Exits as the probe does, and passes signals on to it.
int run_probe_as_process_one() {
  if (unshare(CLONE_NEWPID) != 0) return kNotAllowed;
  container = fork();
  if (container == 0) {
    if (getpid() != 1) _exit(98);
    execl(HOLDFAST_EARLY_PROBE, HOLDFAST_EARLY_PROBE, static_cast<char*>(nullptr));
    _exit(96);
  }
  struct sigaction action {};
  action.sa_handler = pass_on;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) sigaction(signal, &action, nullptr);
  test::say("passing on");
  int status = 0;
  // Not a wait without end: a thread sanitizer runs handlers only between such calls.
  while (waitpid(container, &status, WNOHANG) <= 0) usleep(5'000);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 200 + WTERMSIG(status);
}

int code_after(int signal) {
  ChildProcess child(run_probe_as_process_one);
  if (!child.wait_for_output("constructing with handlers") || !child.wait_for_output("passing on")) {
    return child.wait().exit_code;
  }
  child.send(signal);
  return child.wait().exit_code;
}

TEST(ProcessOne, HearsSignalsAsAnyOther) {
  const int code = code_after(SIGTERM);
  if (code == kNotAllowed) GTEST_SKIP() << "only root may make a process 1";
  EXPECT_EQ(code, 75);
  EXPECT_EQ(code_after(SIGINT), 75);
  EXPECT_EQ(code_after(SIGUSR1), 0) << "a checkpoint, and on it goes";
}

}}  // namespace holdfast
