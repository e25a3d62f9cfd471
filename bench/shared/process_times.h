// What a process has used of the processor, in seconds, user and system together (proc(5), stat).
//
// Errors: zeros for a process that is not there. Threads: any.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace holdfast::bench {

struct ProcessTimes {
  double own = 0;
  double children = 0;  // that it has waited for
};

// `process` may have ended, if nobody has waited for it.
inline ProcessTimes times_of(pid_t process) {
  std::ostringstream text;
  text << std::ifstream("/proc/" + std::to_string(process) + "/stat").rdbuf();
  const std::string stat = text.str();
  const auto name_end = stat.rfind(") ");  // the name may hold any byte
  if (name_end == std::string::npos) return {};
  std::istringstream words(stat.substr(name_end + 2));
  std::string word;
  for (int i = 0; i < 11; ++i) words >> word;
  double user = 0, system = 0, user_of_children = 0, system_of_children = 0;
  words >> user >> system >> user_of_children >> system_of_children;
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  return {.own = (user + system) / ticks, .children = (user_of_children + system_of_children) / ticks};
}

}  // namespace holdfast::bench
