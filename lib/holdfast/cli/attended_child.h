// A command that a wrapper (`supervise`, `rehearse`) runs and looks after: in a process group of its own, so
// that a Ctrl-C at the terminal reaches the wrapper alone, which passes it on once.
//
//   SignalInbox inbox;                                   // before any thread is started
//   AttendedChild child({"trainer", "--lr", "0.1"}, {}, inbox);
//   while (!child.ended()) {
//     if (const auto signal = inbox.wait(child.soon())) child.send(*signal);
//   }
//
// The wrapper becomes the parent of whatever the command leaves behind (also where it is process 1), in
// whatever session, and reaps it. Children that it had before (bash's `> >(tee log)`) are left alone. When
// the wrapper dies, however it dies, the command gets SIGTERM: it commits and leaves.
//
// Errors: IoError when a process or a pipe cannot be made. A command that cannot be executed is an ending
// (126, or 127 where there is no such program), as shells have it, with its reason.
// Threads: one, the one that made the inbox. Others must be started after the inbox: signals are theirs too.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"

namespace holdfast::inline v1 {

// Takes SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP and the children's ends out of a queue instead of a
// handler; as process 1, too, for which unhandled signals do nothing. A SIGHUP that was ignored before
// (nohup) stays ignored; one that is not means that the terminal is gone, and trainers do not listen to it:
// it is taken as SIGTERM.
class SignalInbox {
 public:
  SignalInbox();
  // What came and was not taken is dropped.
  ~SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  // The next signal that a person or a machine sent. nullopt: a child ended, or `limit` passed.
  std::optional<int> wait(Duration limit);
  // The mask of before, for children.
  const sigset_t& before() const { return before_; }
  // So was SIGPIPE; libraries of ours (a web server) set it for the whole process.
  bool ignored_broken_pipes() const { return ignored_broken_pipes_; }

 private:
  sigset_t heard_;
  sigset_t before_;
  bool ignored_broken_pipes_ = false;
};

struct Ending {
  int exit_code = 0;  // meaningless when a signal ended it
  int signal = 0;
  std::string not_started = {};  // why the command could not be executed; exit_code is then 126 or 127

  // As shells have it: 128 + the signal.
  int code() const { return signal != 0 ? 128 + signal : exit_code; }
};
// "exit 75", "killed by SIGSEGV (core dumped or not)"
std::string to_text(const Ending& ending);
std::string signal_name(int signal);  // "SIGTERM"; "signal 42" for one without a name of ours

class AttendedChild {
 public:
  // Starts it. The first word is looked for in PATH when it has no slash. `environment` is added to our own.
  // Standard input is /dev/null where ours is a terminal: a process group in the background must not read it.
  AttendedChild(std::vector<std::string> command, const std::map<std::string, std::string>& environment,
                const SignalInbox& inbox);
  // Nothing of it outlives it (SIGKILL), unless leave_alone() was called.
  ~AttendedChild();
  AttendedChild(const AttendedChild&) = delete;
  AttendedChild& operator=(const AttendedChild&) = delete;

  pid_t id() const { return id_; }
  // To the command alone: a launcher passes it on itself, and a trainer gets exactly one.
  void send(int signal) const;
  // To all of its group, what it left behind there included.
  void send_to_all(int signal) const;
  // What has lost its parent and lives on in other groups: workers of a launcher that was killed.
  std::vector<pid_t> left_behind() const;
  // SIGKILL to it and to everything it has ever started, in whatever group: as when a machine goes away.
  // True when all of it is gone; false after 10 s (what hangs in a disk does not even hear that).
  bool end_all();
  // Reaps what has ended, its own and what it left behind.
  bool ended();
  // Did all of it end? A launcher that dies can leave a trainer that still commits.
  bool all_ended();
  void leave_alone() { all_ended_ = group_ended_ = true; }
  // Requires ended().
  const Ending& ending() const { return ending_; }

 private:
  void reap();

  pid_t id_ = -1;
  bool ended_ = false;
  bool group_ended_ = false;
  bool all_ended_ = false;
  std::vector<pid_t> not_ours_;  // children of the wrapper that were there before
  Ending ending_;
};

}  // namespace holdfast::inline v1
