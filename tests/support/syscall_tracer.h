// Runs a program under ptrace and stops it before or after any system call that could change a file beneath
// one folder. There a test can kill it, or hold it and let it continue. Follows all threads and children; a
// seccomp filter lets all other calls run at full speed.
//
//   SyscallTracer run({HOLDFAST_DRIVER, directory, "5"}, {}, directory);
//   if (run.run_to(17, Moment::before)) run.kill();      // as if it had died there
//
// Requires: its children stay in its process group and use neither ptrace nor setuid. Stop signals do not
// stop it. Errors: std::runtime_error if the system refuses; see why_not(). Threads: each object belongs to
// the thread that made it. Many threads may each have several.
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
  // `filter` is fast; `every_call` stops at all calls, for kernels without seccomp.
  enum class Way { filter, every_call };
  static Way best_way();
  // The reason why programs cannot be traced here, for GTEST_SKIP; nullopt: they can.
  static std::optional<std::string> why_not();

  // The program stops before its first instruction. It is killed after `limit`.
  SyscallTracer(std::vector<std::string> command, const std::map<std::string, std::string>& environment,
                const std::filesystem::path& folder, Way way = best_way(),
                std::chrono::seconds limit = std::chrono::seconds(120));
  ~SyscallTracer();  // kills it
  SyscallTracer(const SyscallTracer&) = delete;
  SyscallTracer& operator=(const SyscallTracer&) = delete;

  // Continues to the `number`-th changing call (from 1, over all threads and children), or to the next wanted
  // one. False if it ended before. The calling thread stays stopped; others run on until they make such a
  // call too.
  bool run_to(std::size_t number, Moment moment);
  bool run_to(const std::function<bool(const ChangingCall&)>& wanted, Moment moment);
  // Stops every thread until the next run_to() or wait().
  void hold();
  // SIGKILL for all of it. A call that it stopped before is not made.
  Ended kill();
  // Lets it run to its end.
  Ended wait();

  // The calls up to now, in the order of their entries, including `hidden` ones.
  const std::vector<ChangingCall>& calls() const { return calls_; }
  // The calls that cannot be followed. A test that counts on having seen all changes requires none.
  std::vector<std::string> hidden() const;
  std::string out() const;  // its output up to now

 private:
  struct Thread {
    bool stands = false;
    bool to_exit = false;  // stop it when its present call returns
    int signal = 0;        // delivered when it continues
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
