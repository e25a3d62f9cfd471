// A program that links holdfast_early_signals hears signals that come before main().
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <utility>

#include "support/child_process.h"

namespace holdfast { namespace {

using test::ChildProcess;

int run_probe_as(const char* mode) {
  execl(HOLDFAST_EARLY_PROBE, HOLDFAST_EARLY_PROBE, mode, static_cast<char*>(nullptr));
  return 96;
}

int run_probe() { return run_probe_as(nullptr); }

TEST(EarlySignals, ASignalDuringConstructorsIsHeardInMain) {
  for (const int signal : {SIGTERM, SIGINT}) {
    ChildProcess child(run_probe);
    ASSERT_TRUE(child.wait_for_output("constructing"));
    child.send(signal);
    const auto result = child.wait();
    EXPECT_EQ(result.exit_code, 75) << result.output;
    EXPECT_EQ(result.signal, 0) << result.output;
    EXPECT_NE(result.output.find("from process " + std::to_string(getpid())), std::string::npos)
        << result.output;
  }
}

TEST(EarlySignals, ACheckpointRequestDoesNotStopIt) {
  ChildProcess child(run_probe);
  ASSERT_TRUE(child.wait_for_output("constructing"));
  child.send(SIGUSR1);
  const auto result = child.wait();
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("checkpoint"), std::string::npos) << result.output;
}

TEST(EarlySignals, ALateSignalCannotKillAFinishedProgram) {
  ChildProcess child(run_probe);
  ASSERT_TRUE(child.wait_for_output("constructing"));
  child.send(SIGUSR1);
  ASSERT_TRUE(child.wait_for_output("finished"));
  child.send(SIGTERM);
  const auto result = child.wait();
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

// Without a Checkpointer, or after it, a stop signal must not be swallowed.
TEST(EarlySignals, AStopThatNobodyListensToEndsTheProgramAllTheSame) {
  ChildProcess never([] { return run_probe_as("never"); });
  ChildProcess interrupted([] { return run_probe_as("never"); });
  ChildProcess works_on([] { return run_probe_as("on"); });
  ASSERT_TRUE(never.wait_for_output("constructing"));
  ASSERT_TRUE(interrupted.wait_for_output("constructing"));
  ASSERT_TRUE(works_on.wait_for_output("constructing"));
  never.send(SIGTERM);
  interrupted.send(SIGINT);
  works_on.send(SIGUSR1);
  ASSERT_TRUE(works_on.wait_for_output("finished"));
  works_on.send(SIGTERM);
  for (const auto& [child, signal] :
       {std::pair<ChildProcess&, int>(never, SIGTERM), std::pair<ChildProcess&, int>(interrupted, SIGINT),
        std::pair<ChildProcess&, int>(works_on, SIGTERM)}) {
    const auto result = child.wait();
    EXPECT_EQ(result.signal, signal) << result.exit_code << result.output;
    EXPECT_NE(result.output.find("because no Checkpointer listens"), std::string::npos) << result.output;
  }
}

TEST(EarlySignals, HandlersStandBeforeTheFirstConstructor) {
  // The probe says, from its first constructor, whether SIGTERM was already taken.
  ChildProcess child(run_probe);
  ASSERT_TRUE(child.wait_for_output("constructing"));
  child.send(SIGUSR1);
  EXPECT_NE(child.wait().output.find("constructing with handlers"), std::string::npos);
}

}}  // namespace holdfast
