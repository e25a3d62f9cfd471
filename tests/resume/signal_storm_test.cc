// A trainer of an LSTM on the CPU is told to save hundreds of times while it computes, and then to stop: it
// lives, each round of its training has the same bits, and it ends with 75. By night a thousand times.
#include <signal.h>

#include <chrono>
#include <random>
#include <thread>

#include "resume/example_run.h"

namespace holdfast::test { namespace {

#ifdef HOLDFAST_STORM_PROGRAM

using namespace std::chrono_literals;

class SignalStorm : public testing::TestWithParam<const char*> {};

TEST_P(SignalStorm, LeavesARunThatResumes) {
  Subprocess trainer({HOLDFAST_STORM_PROGRAM, GetParam(), "100"},
                     {{"OMP_NUM_THREADS", "2"}, {"HOLDFAST_LOG", "warning"}});
  ASSERT_TRUE(trainer.wait_until([&] { return trainer.out().find("ready ") != std::string::npos; }));
  const std::string out = trainer.out();
  const pid_t told = std::stoi(out.substr(out.find("ready ") + 6));
  std::minstd_rand random(1);
  const int signals = nightly() ? 1000 : 300;
  int sent = 0;
  while (sent < signals && trainer.running() && kill(told, SIGUSR1) == 0) {
    ++sent;
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
  }
  EXPECT_EQ(sent, signals) << "the trainer ended under the storm";
  if (trainer.running()) kill(told, SIGTERM);
  const Ended ended = trainer.wait();
  EXPECT_EQ(ended.exit_code, 75) << "signal " << ended.signal << "\n" << ended.out << ended.err;
}

INSTANTIATE_TEST_SUITE_P(Variants, SignalStorm,
                         testing::Values("plain", "threads", "main-blocks", "fork", "fork-in-thread"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

#else

TEST(SignalStorm, NeedsLibTorch) { GTEST_SKIP() << "a build without LibTorch"; }

#endif

}}  // namespace holdfast::test
