// Keeps what tells why a training hangs, before something ends it: `attempts/<n>.stall.txt` in its run
// directory. The file has the last records of the run, the threads and stacks of all its processes, and the
// processes on the GPUs. Each call appends; the file stays below 1 MiB.
//
//   keep_stall_evidence({.by = "holdfast supervise", .why = "step 7 stood still", …}, [&] { hear(); });
//
// Takes `limit` at most: everything that may hang is done on threads that are left behind. Where the run
// directory does not take the file, a file in TMPDIR does. One log line names the file, or says that there is
// none. Errors: none. Threads: one; block signals before.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/base/export.h"
#include "holdfast/store/verifier.h"

namespace holdfast { inline namespace v0_2 {

inline constexpr std::size_t kMostStallBytes = 1 << 20;

struct Stall {
  std::string by;                        // who ends the training
  std::string why;                       // one line
  std::filesystem::path directory = {};  // the run directory; empty: unknown
  AttemptNumber attempt = 0;             // 0: unknown
  std::vector<pid_t> processes = {};     // all of the training on this machine
  std::string details = {};              // what the ranks have told each other: lines
};

// Completes the run directory and the attempt by the files that the processes hold open. Only rank 0 has such
// files.
HOLDFAST_EXPORT void find_run(Stall& stall);

// `meanwhile`: called again and again; takes some milliseconds.
HOLDFAST_EXPORT void keep_stall_evidence(const Stall& stall, const std::function<void()>& meanwhile,
                                         Duration limit = std::chrono::seconds(5));

}}  // namespace holdfast::v0_2
