// How the wrappers (`supervise`, `rehearse`, `launch`) start a command: in its own process group, with the
// signal dispositions and the mask that the wrapper got. If the wrapper dies, the kernel sends the command
// SIGTERM. A standard output or error whose reader has ended becomes /dev/null.
//
// Errors: IoError if a process or a pipe cannot be made. Threads: the one that made the inbox.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace holdfast { inline namespace v0_2 {

class SignalInbox;

struct ProcessOptions {
  std::map<std::string, std::string> environment = {};  // added to ours
  std::vector<std::string> without = {};                // removed from ours
  int output = -1;                                      // becomes standard output; -1: ours
  int error = -1;                                       // becomes standard error; -1: ours
  int inherited = -1;     // one more descriptor that it inherits under its number; -1: none
  int announced_to = -1;  // a pipe that gets its process number before the command runs; -1: none
  bool no_input = false;  // standard input is /dev/null; always if ours is a terminal
};

struct StartedProcess {
  pid_t id = -1;
  int report = -1;           // a pipe that ends when the command runs, or contains why it cannot
  std::string command = {};  // the command's first word
};

// A first word without a slash is looked up in PATH. Waits for the start of the command, but only one second:
// it may lie on a volume that does not answer, and the program must react to signals.
StartedProcess start_process(std::vector<std::string> command, const ProcessOptions& options,
                             const SignalInbox& inbox);

// Why it could not be executed (it ended with 126 or 127); empty if it could. Call it once, after its end.
std::string why_not_started(const StartedProcess& ended);

}}  // namespace holdfast::v0_2
