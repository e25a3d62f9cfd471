// The driver as the crash tests use it: started, and its words read.
//
// Threads: free functions, any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "support/nightly.h"
#include "support/subprocess.h"

namespace holdfast::test {

inline const std::map<std::string, std::string>& quiet() {
  static const std::map<std::string, std::string> environment = {{"HOLDFAST_LOG", "error"}};
  return environment;
}

inline std::vector<std::string> driver(const std::filesystem::path& directory, std::int64_t steps,
                                       const std::vector<std::string>& more = {}) {
  std::vector<std::string> command = {HOLDFAST_DRIVER, directory.native(), std::to_string(steps)};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

inline Ended drive(const std::filesystem::path& directory, std::int64_t steps,
                   const std::vector<std::string>& more = {}) {
  return Subprocess(driver(directory, steps, more), {{"HOLDFAST_LOG", "warning"}}).wait();
}

// The number after the last `word step=`; -1 without one.
inline std::int64_t last_step(const std::string& out, const std::string& word) {
  std::int64_t step = -1;
  for (const std::string& line : lines_of(out)) {
    const std::string start = word + " step=";
    if (line.starts_with(start)) step = std::stoll(line.substr(start.size()));
  }
  return step;
}

inline std::string state_in(const std::string& line) {
  const auto at = line.find("state=");
  return at == std::string::npos ? line : line.substr(at + 6, 32);
}

// The state in which a run ends that nothing disturbs; what went wrong instead, when it did.
inline std::string straight_state(std::int64_t steps, const std::vector<std::string>& more = {}) {
  const TemporaryFolder folder;
  const Ended ended = drive(folder.path() / "run", steps, more);
  return ended.exit_code == 0 ? state_in(ended.last_line()) : "no state: " + ended.err;
}

}  // namespace holdfast::test
