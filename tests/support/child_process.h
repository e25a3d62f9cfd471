// Runs a part of a test in a separate process, for signals, exits and crashes. Call it while this process has
// one thread.
//
// Threads: one.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

namespace holdfast::test {

struct ChildResult {
  int exit_code = -1;  // -1: ended by a signal
  int signal = 0;      // the signal that ended it
  std::string output;  // standard output and error
};

class ChildProcess {
 public:
  // `work` runs in the child; its result is the exit code. The child is killed after 30 s. `terminal`: it
  // gets its own terminal (a pty), and type() sends key presses.
  explicit ChildProcess(const std::function<int()>& work, bool terminal = false);
  ~ChildProcess();  // kills it if it still runs
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t id() const { return id_; }
  // Waits until the child has printed `text`. False if it ended before, or after 20 s.
  bool wait_for_output(const std::string& text);
  void send(int signal) const;
  void type(const std::string& keys) const;
  ChildResult wait();

 private:
  bool read_some(int timeout_ms);

  pid_t id_ = -1;
  int channel_ = -1;
  std::string output_;
};

// True if a ChildProcess can have a terminal here.
bool has_terminals();

// Call in the child: sends a line to the parent, unbuffered.
void say(const std::string& line);

}  // namespace holdfast::test
