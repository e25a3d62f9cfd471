#include "holdfast/base/process/process_identity.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "support/french_numbers.h"

namespace holdfast::test { namespace {

TEST(ProcessIdentity, NamesThisProcess) {
  const ProcessIdentity own = own_process();
  EXPECT_EQ(own.pid, getpid());
  EXPECT_TRUE(is_running(own));
}

// The space between two numbers of /proc would be taken for a separator within one.
TEST(ProcessIdentity, IsTheSameWhereAProgramsLocaleGroupsDigitsBySpaces) {
  const ProcessIdentity own = own_process();
  const FrenchNumbers locale;
  EXPECT_TRUE(is_running(own));
  EXPECT_EQ(own_process().started, own.started);
}

TEST(ProcessIdentity, OfWhichOneValueDiffersIsAnotherProcess) {
  ProcessIdentity other = own_process();
  ++other.started;
  EXPECT_FALSE(is_running(other));
  EXPECT_FALSE(signal_process(other, 0));
  other = own_process();
  ++other.pid_namespace;
  EXPECT_FALSE(is_running(other));
  EXPECT_FALSE(is_running({}));
}

TEST(ProcessIdentity, AProcessThatHasEndedDoesNotRun) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    pause();
    _exit(0);
  }
  ProcessIdentity process = own_process();
  process.pid = child;
  process.started = start_of_process(child);
  EXPECT_TRUE(is_running(process));
  EXPECT_TRUE(signal_process(process, SIGKILL));
  siginfo_t ended{};
  waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT);
  EXPECT_FALSE(is_running(process)) << "it waits to be reaped";
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(is_running(process));
}

}}  // namespace holdfast::test
