// Runs several commands on this machine, some at a time, in order: `holdfast sweep --local`. Each is a
// `holdfast supervise`, so each gets the signals of this process and commits in its own grace.
//
//   std::vector<LocalRun> runs = …;
//   return run_locally(runs, {"GPU-5c…", "GPU-77…"}, 2);
//
// A run that fails does not stop the others. Its lines have its name in front.
// Errors: UsageError for a malformed HOLDFAST_STOP_SIGNALS; IoError without pipes. Threads: call it before
// others start.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace holdfast { inline namespace v0_2 {

struct LocalRun {
  std::string name;
  std::vector<std::string> command;
  std::optional<int> code = {};  // how it ended; set before: it is complete and not started
};

// `gpus`: CUDA_VISIBLE_DEVICES of each of the `at_once` places; empty: the variable stays as it is.
// Returns 0 if all runs ended with 0; 130 if one did; 75 if a run is resumable or was not started; otherwise
// the code of the first run that failed, in the order of `runs`.
int run_locally(std::vector<LocalRun>& runs, const std::vector<std::string>& gpus, std::size_t at_once);

}}  // namespace holdfast::v0_2
