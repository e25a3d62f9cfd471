// Real signals, each test in a process of its own.
#include "holdfast/interruption/signal_source.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "holdfast/base/error.h"
#include "holdfast/interruption/monitor.h"
#include "support/child_process.h"
#include "support/fake_clock.h"
#include "support/notice_heard.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;
using test::ChildProcess;
using test::say;

std::atomic<int> earlier_calls{0};
void earlier_handler(int) { ++earlier_calls; }
void earlier_handler_with_info(int, siginfo_t* info, void*) { earlier_calls += info->si_pid > 0 ? 1 : 100; }
void handler_on_top(int) {}

sighandler_t handler_of(int signal) {
  struct sigaction action {};
  sigaction(signal, nullptr, &action);
  return action.sa_handler;
}

// A child that listens, says "ready", and exits with what `then` returns.
template <class Then>
auto listening(Then then) {
  return [then] {
    Monitor monitor;
    monitor.add(std::make_unique<SignalSource>());
    monitor.start();
    say("ready");
    return then(monitor);
  };
}

TEST(Signals, SigtermAsksToStopWithinTheGrace) {
  ChildProcess child(listening([](Monitor& monitor) {
    if (!test::heard_soon(monitor)) return 1;
    const auto left = *monitor.time_left();
    if (left > 25s || left < 5s) return 2;
    if (monitor.reason() != "SIGTERM from process " + std::to_string(getppid())) return 3;
    return monitor.stop_requested() ? 75 : 4;
  }));
  ASSERT_TRUE(child.wait_for_output("ready"));
  child.send(SIGTERM);
  const auto result = child.wait();
  EXPECT_EQ(result.exit_code, 75) << result.output;
}

// The net beneath the eventfd is a look once a second; by that alone, all but the first would take a second.
TEST(Signals, TheTrainingThreadSeesItBeforeTheNextLook) {
  ChildProcess child(listening([](Monitor& monitor) {
    auto quickest = std::chrono::steady_clock::duration::max();
    for (int i = 0; i < 6; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      raise(SIGUSR1);
      while (!monitor.take_checkpoint_request()) std::this_thread::yield();
      if (i > 0) quickest = std::min(quickest, std::chrono::steady_clock::now() - begin);
    }
    return quickest < 500ms ? 0 : 1;
  }));
  EXPECT_EQ(child.wait().exit_code, 0);
}

TEST(Signals, RepeatsAreOneNotice) {
  ChildProcess child(listening([](Monitor& monitor) {
    for (int i = 0; i < 20; ++i) {
      raise(SIGTERM);
      raise(SIGINT);
      std::this_thread::sleep_for(2ms);
    }
    while (monitor.notices().size() < 2) std::this_thread::yield();
    std::this_thread::sleep_for(50ms);
    return static_cast<int>(monitor.notices().size());
  }));
  EXPECT_EQ(child.wait().exit_code, 2) << "one SIGTERM and one SIGINT";
}

TEST(Signals, Sigusr1SavesAndGoesOnEveryTime) {
  ChildProcess child(listening([](Monitor& monitor) {
    for (int i = 0; i < 3; ++i) {
      raise(SIGUSR1);
      while (!monitor.pending()) std::this_thread::yield();
      if (!monitor.take_checkpoint_request() || monitor.pending()) return 1;
    }
    return monitor.stop_requested() || monitor.deadline() ? 2 : 0;
  }));
  EXPECT_EQ(child.wait().exit_code, 0);
}

TEST(Signals, SystemCallsGoOn) {
  ChildProcess child(listening([](Monitor& monitor) {
    int ends[2];
    if (pipe(ends) != 0) return 1;
    const pthread_t self = pthread_self();
    std::thread other([&] {
      std::this_thread::sleep_for(50ms);
      pthread_kill(self, SIGUSR1);
      std::this_thread::sleep_for(50ms);
      if (write(ends[1], "x", 1) != 1) _exit(2);
    });
    char byte = 0;
    const ssize_t count = read(ends[0], &byte, 1);
    other.join();
    if (count != 1) return 3;
    while (!monitor.take_checkpoint_request()) std::this_thread::yield();
    return 0;
  }));
  EXPECT_EQ(child.wait().exit_code, 0);
}

TEST(Signals, EarlierHandlersAreCalledAndComeBack) {
  ChildProcess child([] {
    std::signal(SIGTERM, earlier_handler);
    std::signal(SIGINT, SIG_IGN);
    struct sigaction with_info {};
    with_info.sa_sigaction = earlier_handler_with_info;
    with_info.sa_flags = SA_SIGINFO;
    sigaction(SIGUSR1, &with_info, nullptr);
    {
      Monitor monitor;
      monitor.add(std::make_unique<SignalSource>());
      monitor.start();
      kill(getpid(), SIGTERM);
      kill(getpid(), SIGUSR1);
      if (earlier_calls != 2) return 1;
      if (!test::heard_soon(monitor)) return 2;
      kill(getpid(), SIGINT);
      while (monitor.notices().size() < 2) std::this_thread::yield();  // ignored before, heard now
    }
    if (handler_of(SIGTERM) != earlier_handler) return 3;
    if (handler_of(SIGINT) != SIG_IGN) return 4;
    raise(SIGTERM);
    return earlier_calls == 3 ? 0 : 5;
  });
  const auto result = child.wait();
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

TEST(Signals, AHandlerThatWasPutOnTopStays) {
  ChildProcess child([] {
    {
      const SignalSource source;
      std::signal(SIGTERM, handler_on_top);
    }
    return handler_of(SIGTERM) == handler_on_top && handler_of(SIGINT) == SIG_DFL ? 0 : 1;
  });
  EXPECT_EQ(child.wait().exit_code, 0);
}

TEST(Signals, SeveralSourcesHearEverySignalAndANewOneOnlyNewOnes) {
  ChildProcess child([] {
    {
      SignalSource one;
      SignalSource two;
      raise(SIGTERM);
      if (one.poll().size() != 1 || two.poll().size() != 1) return 1;
    }
    SignalSource three;
    if (!three.poll().empty()) return 2;
    raise(SIGTERM);
    return three.poll().size() == 1 ? 0 : 3;
  });
  EXPECT_EQ(child.wait().exit_code, 0);
}

TEST(Signals, AForkedChildDiesOfItsOwnSignalAndTheParentHearsNothing) {
  ChildProcess child([] {
    SignalSource source;
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      raise(SIGTERM);
      _exit(0);
    }
    int status = 0;
    waitpid(grandchild, &status, 0);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGTERM) return 1;
    return source.poll().empty() ? 0 : 2;
  });
  EXPECT_EQ(child.wait().exit_code, 0);
}

TEST(Signals, AForkedChildMayListenForItself) {
  ChildProcess child([] {
    const SignalSource parents;
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      SignalSource own;
      raise(SIGTERM);
      _exit(own.poll().size() == 1 ? 0 : 1);
    }
    int status = 0;
    waitpid(grandchild, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 2;
  });
  EXPECT_EQ(child.wait().exit_code, 0);
}

TEST(Signals, TheGraceComesFromTheEnvironmentAndCountsFromTheSignal) {
  ChildProcess child([] {
    setenv("HOLDFAST_TERM_GRACE", "8s", 1);
    test::FakeClock clock;
    SignalSource source(clock, 60s);
    raise(SIGTERM);
    std::this_thread::sleep_for(300ms);
    const auto notices = source.poll();
    if (notices.size() != 1) return 1;
    const Duration left = *notices[0].deadline - clock.now();
    return left <= 7700ms ? 0 : 2;
  });
  EXPECT_EQ(child.wait().exit_code, 0);
}

TEST(Signals, AWrongGraceIsRefused) {
  ChildProcess child([] {
    setenv("HOLDFAST_TERM_GRACE", "soon", 1);
    try {
      const SignalSource source;
    } catch (const UsageError&) {
      return handler_of(SIGTERM) == SIG_DFL ? 0 : 1;
    }
    return 2;
  });
  EXPECT_EQ(child.wait().exit_code, 0);
}

int wait_long(Monitor&) {
  for (int i = 0; i < 1500; ++i) std::this_thread::sleep_for(10ms);
  return 75;
}

// `… | tee log`, and a Ctrl-C that ends tee first.
TEST(Signals, AReaderThatLeftDoesNotEndTheRun) {
  const auto work = listening([](Monitor&) {
    int ends[2];
    if (pipe(ends) != 0 || close(ends[0]) != 0) return 1;
    const ssize_t written = write(ends[1], "x", 1);
    return written < 0 && errno == EPIPE ? 75 : 2;
  });
  ChildProcess child([&] {
    signal(SIGPIPE, SIG_DFL);  // a server in a test before this one may have set it to be ignored
    return work();
  });
  EXPECT_EQ(child.wait().exit_code, 75);
}

// The first save of a state that is larger than `ulimit -f` would end the training without a word.
TEST(Signals, AFileBeyondTheLimitIsAFailedWrite) {
  ChildProcess child(listening([](Monitor&) {
    const rlimit limit{1 << 10, 1 << 10};
    FILE* const file = tmpfile();
    if (file == nullptr || setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    const bool refused = posix_fallocate(fileno(file), 0, 1 << 20) == EFBIG;
    const ssize_t written = pwrite(fileno(file), "x", 1, 1 << 20);
    return refused && written < 0 && errno == EFBIG ? 75 : 2;
  }));
  EXPECT_EQ(child.wait().exit_code, 75);
}

TEST(CtrlC, WithoutATerminalTheSecondOneChangesNothing) {
  ChildProcess child(listening([](Monitor& monitor) {
    raise(SIGINT);
    if (!test::heard_soon(monitor)) return 1;
    std::this_thread::sleep_for(250ms);
    raise(SIGINT);
    std::this_thread::sleep_for(50ms);
    return monitor.stop_requested() ? 75 : 2;
  }));
  EXPECT_EQ(child.wait().exit_code, 75);
}

class CtrlCAtATerminal : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_terminals()) GTEST_SKIP() << "no pseudo-terminal can be made here (is /dev/pts mounted?)";
  }
};

TEST_F(CtrlCAtATerminal, TheSecondOneLeavesAtOnce) {
  ChildProcess child(listening(wait_long), true);
  ASSERT_TRUE(child.wait_for_output("ready"));
  child.type("\x03");
  ASSERT_TRUE(child.wait_for_output("Ctrl-C again within 10 s leaves at once"));
  child.type("\x03");
  const auto result = child.wait();
  EXPECT_EQ(result.exit_code, 130) << result.output;
  EXPECT_NE(result.output.find("the newest acknowledged checkpoint stands"), std::string::npos)
      << result.output;
}

// A wrapper passes the same key press on, within a fifth of a second: on a machine that is too busy for that,
// tried again.
TEST_F(CtrlCAtATerminal, AForwardedOneIsNotASecondKeyPress) {
  int code = 130;
  for (int i = 0; i < 5 && code == 130; ++i) {
    ChildProcess child(listening([](Monitor& monitor) {
                         if (!test::heard_soon(monitor)) return 1;
                         raise(SIGINT);
                         std::this_thread::sleep_for(50ms);
                         return 75;
                       }),
                       true);
    ASSERT_TRUE(child.wait_for_output("ready"));
    child.type("\x03");
    code = child.wait().exit_code;
  }
  EXPECT_EQ(code, 75);
}

TEST_F(CtrlCAtATerminal, ItWaitsForTheEndOfARename) {
  ChildProcess child(listening([](Monitor& monitor) {
                       const HoldOffForcedExit guard;
                       say("in the rename");
                       test::heard_soon(monitor);
                       // Not a wait without end: a thread sanitizer runs handlers only between such calls.
                       fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
                       char end = 0;
                       while (read(STDIN_FILENO, &end, 1) < 0) std::this_thread::sleep_for(5ms);
                       say("renamed");
                       return 0;
                     }),
                     true);
  ASSERT_TRUE(child.wait_for_output("in the rename"));
  child.type("\x03");
  ASSERT_TRUE(child.wait_for_output("leaves at once"));
  child.type("\x03");
  ASSERT_TRUE(child.wait_for_output("left at once"));
  child.type("\n");
  const auto result = child.wait();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_NE(result.output.find("renamed"), std::string::npos) << result.output;
}

}}  // namespace holdfast
