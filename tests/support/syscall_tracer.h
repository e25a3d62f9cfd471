// Runs a program under ptrace and stops it at any system call that could change a file beneath one folder:
// before the call, or after it. There it can be killed, or held for as long as a test likes and then let on.
// Follows all of its threads and children; a filter in the kernel (seccomp) lets all other calls run at full
// speed.
//
//   SyscallTracer run({HOLDFAST_DRIVER, directory, "5"}, {}, directory);
//   if (run.run_to(17, Moment::before)) run.kill();      // as if it had died there
//
// Requires: the program's children stay in its process group and do not use ptrace or setuid. A stop signal
// does not stop it (hold() does). Errors: std::runtime_error when the system refuses; see why_not().
// Threads: each object belongs to the thread that made it, as the kernel demands; many threads may each have
// some, beside children of other kinds.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/changing_call.h"
#include "support/subprocess.h"

namespace holdfast::test {

enum class Moment { before, after };
inline const char* name_of(Moment moment) { return moment == Moment::before ? "before" : "after"; }

class SyscallTracer {
 public:
  // `filter` is quick; `every_call` stops at all of them, for kernels without seccomp.
  enum class Way { filter, every_call };
  static Way best_way();
  // Why programs cannot be traced here, for GTEST_SKIP; nullopt: they can.
  static std::optional<std::string> why_not();

  // It stands before its first instruction. After `limit` it is killed, wherever it is.
  SyscallTracer(std::vector<std::string> command, const std::map<std::string, std::string>& environment,
                const std::filesystem::path& folder, Way way = best_way(),
                std::chrono::seconds limit = std::chrono::seconds(120));
  ~SyscallTracer();  // kills it
  SyscallTracer(const SyscallTracer&) = delete;
  SyscallTracer& operator=(const SyscallTracer&) = delete;

  // Lets it run to its `number`-th changing call (from 1, over all threads and children) or, in the second
  // form, to the first one still to come that is wanted; false: it ended first. The thread that makes the
  // call stands still then, others may run on until they make one, too.
  bool run_to(std::size_t number, Moment moment);
  bool run_to(const std::function<bool(const ChangingCall&)>& wanted, Moment moment);
  // Every thread stands still until the next run_to() or wait().
  void hold();
  // SIGKILL to all of it. A call that it stood before is not made.
  Ended kill();
  // Lets it go on to its end.
  Ended wait();

  // Seen so far, in the order of their entries; with those that were `hidden`.
  const std::vector<ChangingCall>& calls() const { return calls_; }
  // Those that cannot be followed; a test that counts on having seen all changes wants none.
  std::vector<std::string> hidden() const;
  std::string out() const;  // what it has written so far

 private:
  struct Thread {
    bool stands = false;
    bool to_exit = false;  // stop it at the end of the call that it is in
    int signal = 0;        // to be delivered when it goes on
  };

  void attach(int gate);
  bool next_event();
  void stopped(pid_t thread, int status);
  void consider(pid_t thread);
  void let_on();
  bool run();
  Ended drain();

  TemporaryFolder output_;
  std::string folder_;
  Way way_;
  pid_t root_ = -1;
  bool ended_ = false;
  int status_ = 0;
  std::map<pid_t, Thread> threads_;
  std::vector<ChangingCall> calls_;
  std::function<bool(const ChangingCall&)> wanted_;
  Moment moment_ = Moment::before;
  bool reached_ = false;
  std::jthread watchdog_;
};

}  // namespace holdfast::test
