// Which signals ask to stop, each test in a process of its own.
#include "holdfast/interruption/stop_signals.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>

#include "holdfast/base/error.h"
#include "holdfast/interruption/signal_source.h"
#include "support/child_process.h"

namespace holdfast { namespace {

using test::ChildProcess;

enum Heard { nothing = 10, stop = 11, checkpoint = 12, differently = 13 };

// What a process with that list hears of a signal that had `before` when it began.
test::ChildResult hears(int signal, const char* list = nullptr, sighandler_t before = SIG_DFL) {
  return ChildProcess([&] {
           unsetenv("HOLDFAST_STOP_SIGNALS");
           if (list != nullptr) setenv("HOLDFAST_STOP_SIGNALS", list, 1);
           std::signal(signal, before);
           SignalSource source;
           raise(signal);
           const bool came = stop_signal_came();  // as waits before the monitor ask
           const auto notices = source.poll();
           if (came != (!notices.empty() && notices[0].kind == NoticeKind::stop)) {
             return static_cast<int>(differently);
           }
           if (notices.empty()) return static_cast<int>(nothing);
           return static_cast<int>(notices[0].kind == NoticeKind::stop ? stop : checkpoint);
         })
      .wait();
}

TEST(StopSignals, HangUpUsr2AndTheCpuLimitStopAsSigtermDoes) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR2, SIGXCPU}) {
    const auto result = hears(signal);
    EXPECT_EQ(result.exit_code, stop) << strsignal(signal) << ": killed by " << result.signal;
  }
  EXPECT_EQ(hears(SIGUSR1).exit_code, checkpoint);
}

TEST(StopSignals, TheListChooses) {
  EXPECT_EQ(hears(SIGUSR1, "USR1").exit_code, stop) << "Slurm's --signal=USR1@120";
  EXPECT_EQ(hears(SIGUSR1, "SIGUSR2,SIGUSR1").exit_code, stop);
  EXPECT_EQ(hears(SIGTERM, "USR1").exit_code, stop);
  EXPECT_EQ(hears(SIGINT, "USR1").exit_code, stop);
  EXPECT_EQ(hears(SIGUSR1, "HUP").exit_code, checkpoint);
  EXPECT_EQ(hears(SIGHUP, "TERM,INT").signal, SIGHUP) << "left as it was";
}

TEST(StopSignals, WhatWasIgnoredStaysSoUnlessItIsNamed) {
  EXPECT_EQ(hears(SIGHUP, nullptr, SIG_IGN).exit_code, nothing) << "nohup";
  EXPECT_EQ(hears(SIGHUP, "HUP", SIG_IGN).exit_code, stop);
  EXPECT_EQ(hears(SIGINT, nullptr, SIG_IGN).exit_code, stop) << "shells ignore it for background jobs";
}

TEST(StopSignals, AWrongNameIsRefused) {
  for (const char* const wrong : {"USR3", "usr1", "USR1;HUP", "USR1,", "KILL", "SIG", ","}) {
    ChildProcess child([&] {
      setenv("HOLDFAST_STOP_SIGNALS", wrong, 1);
      try {
        const SignalSource source;
      } catch (const UsageError& error) {
        return std::string(error.what()).find("TERM, INT, HUP, USR1, USR2, XCPU") != std::string::npos ? 0
                                                                                                       : 1;
      }
      return 2;
    });
    EXPECT_EQ(child.wait().exit_code, 0) << wrong;
  }
}

}}  // namespace holdfast
