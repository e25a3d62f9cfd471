// A stop signal ends a run whatever sources were chosen, and the program when its run is over.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "rig.h"
#include "support/child_process.h"

namespace holdfast::test { namespace {

// Who narrows the list of sources to poll does not want to be deaf.
TEST(StopSignal, IsHeardWhateverSourcesAreChosen) {
  ChildProcess child([] {
    setenv("HOLDFAST_SOURCES", "file", 1);
    Volume volume;
    CheckpointerOptions options = volume.options();
    options.notices.hear_signals = true;
    Attempt run(options);
    run.step();
    raise(SIGTERM);
    for (int i = 0; i < 2000 && !run.decision.stop; ++i) {
      usleep(1000);
      run.step();
    }
    return run.checkpointer.finish();
  });
  const ChildResult result = child.wait();
  EXPECT_EQ(result.exit_code, 75) << result.signal << result.output;
}

TEST(StopSignal, AfterTheRunEndsTheProgramAsItWouldWithoutHoldfast) {
  ChildProcess child([] {
    Volume volume;
    CheckpointerOptions options = volume.options();
    options.notices.hear_signals = true;
    Attempt run(options);
    run.train_to(2);
    if (run.checkpointer.finish() != 0) return 1;
    say("over");
    for (int i = 0; i < 6000; ++i) usleep(10'000);
    return 2;
  });
  ASSERT_TRUE(child.wait_for_output("over"));
  child.send(SIGTERM);
  const ChildResult result = child.wait();
  EXPECT_EQ(result.signal, SIGTERM) << result.exit_code << result.output;
  EXPECT_NE(result.output.find("because no Checkpointer listens"), std::string::npos) << result.output;
}

}}  // namespace holdfast::test
