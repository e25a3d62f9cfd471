// Instructions of one step of a loop, in this very program or in another: exact, and the same on every run. Callgrind
// counts a run of many steps and one of few; the difference is divided by the steps between.
//
// Errors: Error if callgrind counts nothing. Threads: any.
#pragma once

#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/error.h"
#include "spawn.h"
#include "temporary_folder.h"

namespace holdfast::bench {

using Words = std::vector<std::string>;

// A run to count: the program with its arguments, and what it reads.
struct CountedRun {
  Words command;
  std::string input = "/dev/null";
};

// This very program with these arguments.
inline CountedRun this_program(const Words& arguments) {
  CountedRun run{.command = {std::filesystem::read_symlink("/proc/self/exe").string()}};
  run.command.insert(run.command.end(), arguments.begin(), arguments.end());
  return run;
}

// Of one run; `options` are callgrind's. nullopt: no valgrind.
inline std::optional<double> instructions(const Words& options, const CountedRun& run) {
  const TemporaryFolder folder;
  const std::string log = folder.path() / "callgrind";
  Words words = {"valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), run.command.begin(), run.command.end());
  Redirections to;
  to.open(0, run.input, O_RDONLY);
  to.open(1, "/dev/null", O_WRONLY);
  to.open(2, log, O_WRONLY | O_CREAT);
  const pid_t child = spawn(words, to);
  if (child < 0) return std::nullopt;
  int status = 0;
  ::waitpid(child, &status, 0);
  std::ifstream lines(log);
  for (std::string line; status == 0 && std::getline(lines, line);) {
    const auto at = line.find("Collected :");
    if (at == std::string::npos) continue;
    const double count = std::stod(line.substr(at + 11));
    if (count > 0) return count;
  }
  throw Error("callgrind ended with status " + std::to_string(status) + " and counted nothing");
}

// `run_of`: a run of so many steps.
inline std::optional<double> instructions_of_one(const Words& options, int few, int many,
                                                 const std::function<CountedRun(int steps)>& run_of) {
  const auto least = instructions(options, run_of(few));
  if (!least) return std::nullopt;
  return (instructions(options, run_of(many)).value() - *least) / (many - few);
}

}  // namespace holdfast::bench
