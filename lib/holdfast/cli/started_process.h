// How the wrappers (`supervise`, `rehearse`, `launch`) start a command: in a process group of its own, with
// the signals and the mask that the wrapper itself was given, and with a SIGTERM when the wrapper dies,
// however it dies.
//
// Errors: IoError when a process or a pipe cannot be made. Threads: the one that made the inbox.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "holdfast/cli/attended_child.h"

namespace holdfast::inline v1 {

struct StartOptions {
  std::map<std::string, std::string> environment = {};  // added to our own
  std::vector<std::string> without = {};                // taken from our own
  int output = -1;                                      // descriptors that become the standard ones; -1: ours
  int error = -1;
  int inherited = -1;     // one more that it gets, under its number; -1: none
  bool no_input = false;  // /dev/null; so it is, too, where ours is a terminal: it runs in the background
};

struct StartedProcess {
  pid_t id = -1;
  std::string not_started = {};  // why the command could not be executed: it ends with 126 or 127
};

// The first word is looked for in PATH when it has no slash.
StartedProcess start_process(std::vector<std::string> command, const StartOptions& options,
                             const SignalInbox& inbox);

}  // namespace holdfast::inline v1
