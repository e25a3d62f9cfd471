// Runs a piece of a test in a process of its own: for signals, exits and crashes. Call it while this process
// has one thread only.
//
// Threads: one.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

namespace holdfast::test {

struct ChildResult {
  int exit_code = -1;  // -1: ended by a signal
  int signal = 0;      // the one that ended it
  std::string output;  // standard output and error
};

class ChildProcess {
 public:
  // `work` runs in the child; its result is the exit code. The child is killed after 30 s. On a terminal of
  // its own (a pty) when asked: then type() reaches it as key presses.
  explicit ChildProcess(const std::function<int()>& work, bool terminal = false);
  ~ChildProcess();  // kills it if it is still there
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t id() const { return id_; }
  // Waits until it has printed `text`; false when it ended first or 20 s have passed.
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

// Can a ChildProcess have a terminal of its own here?
bool has_terminals();

// In the child: a line to the parent, unbuffered.
void say(const std::string& line);

}  // namespace holdfast::test
