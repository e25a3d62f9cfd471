// A forked child that destroys its copy of a Monitor ends at once, and the parent still hears.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <memory>

#include "holdfast/interruption/monitor.h"
#include "holdfast/interruption/signal_source.h"
#include "support/child_process.h"
#include "support/notice_heard.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;

TEST(ForkedChild, DestroysItsMonitorAndTheParentStillHears) {
  test::ChildProcess parent([] {
    auto monitor = std::make_unique<Monitor>();
    monitor->add(std::make_unique<SignalSource>());
    monitor->start();
    const pid_t worker = fork();
    if (worker == 0) {
      alarm(5);  // a worker that joins the parent's threads waits for ever
      monitor.reset();
      _exit(0);
    }
    int status = 0;
    waitpid(worker, &status, 0);
    kill(getpid(), SIGTERM);
    if (!test::heard_soon(*monitor)) return 3;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 2;
  });
  EXPECT_EQ(parent.wait().exit_code, 0)
      << "2: the worker hangs or dies; 3: the parent hears nothing any more";
}

}}  // namespace holdfast
