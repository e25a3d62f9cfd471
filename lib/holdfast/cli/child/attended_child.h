// A command that a wrapper (`supervise`, `rehearse`) runs and supervises. It has its own process group, so
// that a Ctrl-C at the terminal reaches only the wrapper, which forwards it once.
//
//   while (!child.ended()) {                             // inbox: made before any thread starts
//     if (const auto signal = inbox.wait(100ms)) child.send(*signal);
//   }
//
// The wrapper becomes the parent of all processes that the command leaves behind, and reaps them. So it must
// have no other children (front_process.h). It does not end on-risk hooks, and processes of another user
// (sudo). If the wrapper dies, the command gets SIGTERM: it commits and ends.
// Errors: none; a command that cannot run is an Ending with a reason (126, 127, or 70 for a passing limit).
// Threads: the one that made the inbox. Start others after the inbox, because they inherit its signal mask.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/cli/child/started_process.h"
#include "holdfast/interruption/stop_signals.h"

namespace holdfast { inline namespace v0_2 {

// Takes SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGXCPU and SIGCHLD from a queue instead of a handler.
// That works as process 1 too, for which the kernel ignores unhandled signals. A SIGHUP that was ignored
// before (nohup) stays ignored. Stop signals (interruption/stop_signals.h) are returned as SIGTERM, SIGINT as
// itself. Errors: UsageError for a malformed HOLDFAST_STOP_SIGNALS.
class SignalInbox {
 public:
  SignalInbox();
  // Drops signals that were not taken.
  ~SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  // The next signal from a person or a machine. nullopt: a child ended, or `limit` passed.
  std::optional<int> wait(Duration limit);
  // The earlier signal mask, for children.
  const sigset_t& before() const { return before_; }
  // SIGPIPE was ignored before. Our libraries (a web server) ignore it for the whole process.
  bool ignored_broken_pipes() const { return ignored_broken_pipes_; }

 private:
  const StopSignals stops_ = stop_signals();
  sigset_t heard_;
  sigset_t before_;
  bool ignored_broken_pipes_ = false;
};

struct Ending {
  int exit_code = 0;  // invalid if a signal ended it
  int signal = 0;
  std::string not_started = {};  // why the command could not be executed; exit_code is then 126, 127 or 70

  // As in shells: 128 + the signal.
  int code() const { return signal != 0 ? 128 + signal : exit_code; }
};
// "exit 75", "killed by SIGSEGV (core dumped or not)"
std::string to_text(const Ending& ending);
// Includes children that have ended and were not reaped.
std::vector<pid_t> children_of(pid_t parent);
// These processes, and all that descend from them, without repetition.
std::vector<pid_t> with_descendants(const std::vector<pid_t>& processes);
std::string signal_name(int signal);  // "SIGTERM"; "signal 42" for a signal without a name

class AttendedChild {
 public:
  // Starts the command, with `environment` added to ours. A first word without a slash is looked up in PATH.
  // Standard input is /dev/null if ours is a terminal, because a background process group must not read it.
  AttendedChild(std::vector<std::string> command, const std::map<std::string, std::string>& environment,
                const SignalInbox& inbox);
  // Kills all its processes (SIGKILL), unless leave_alone() was called.
  ~AttendedChild();
  AttendedChild(const AttendedChild&) = delete;
  AttendedChild& operator=(const AttendedChild&) = delete;

  pid_t id() const { return id_; }  // -1: no process
  // To the command alone: a launcher forwards it itself, and a trainer must get exactly one.
  void send(int signal) const;
  // To the whole group, including processes that the command left behind there.
  void send_to_all(int signal) const;
  // Orphans that live in other groups, such as workers of a killed launcher.
  std::vector<pid_t> left_behind();
  // SIGKILL to everything that it has ever started, in any group, as if the machine went away. True when all
  // are gone; false after 10 s: a process that hangs in a disk does not react even to SIGKILL.
  bool end_all();
  // Reaps its processes that have ended. True if the command itself has.
  bool ended();
  // True if all its processes have ended. A launcher that dies may leave a trainer that still commits.
  bool all_ended();
  void leave_alone() { all_ended_ = group_ended_ = true; }
  // Requires ended().
  const Ending& ending() const { return ending_; }

 private:
  void reap();
  bool is_anothers(pid_t process);

  pid_t id_ = -1;
  StartedProcess started_;
  bool ended_ = false;
  bool group_ended_ = false;
  bool all_ended_ = false;
  std::set<pid_t> others_;  // processes of another user that were logged
  Ending ending_;
};

}}  // namespace holdfast::v0_2
