// Tells whether a process has installed its signal handlers: from then on the signal must not kill it.
//
// Threads: any.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <string>

#include "support/subprocess.h"

namespace holdfast::test {

inline bool catches_sigterm(pid_t process) {
  for (const auto& line : lines_of(read_text("/proc/" + std::to_string(process) + "/status"))) {
    if (!line.starts_with("SigCgt:")) continue;
    return (std::stoull(line.substr(7), nullptr, 16) >> (SIGTERM - 1) & 1) != 0;
  }
  return false;
}

}  // namespace holdfast::test
