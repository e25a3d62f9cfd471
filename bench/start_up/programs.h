// The programs whose start is measured: our example, and its peer in Python.
//
// Errors: Error if the peer is not installed, or if a program fails; it names its last words. Threads: one thread.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "../shared/temporary_folder.h"

namespace holdfast::bench {

struct Work {
  std::string data = "synthetic";      // or a folder of CIFAR-10
  std::string width = "64";            // of ResNet-50; 64 is the usual one
  std::vector<std::string> more = {};  // options of ours
};

// From the start of a process until its first step has ended.
struct Start {
  std::chrono::steady_clock::time_point begin;
  double seconds = 0;
};

class Programs {
 public:
  explicit Programs(const Work& work) : work_(work) {}

  // The next start of each finds nothing to resume from.
  void forget() const;
  // Trains until `steps` and saves. `shell`: what a shell does before it becomes the example, such as
  // "export NAME=value"; standard output then goes where standard error goes.
  Start ours(int steps, const std::string& shell = {}) const;
  Start peer() const;

  const Work& work() const { return work_; }
  const std::filesystem::path& folder() const { return folder_.path(); }
  // Standard error of the last program.
  std::filesystem::path errors() const { return folder() / "errors"; }

 private:
  Work work_;
  TemporaryFolder folder_;
};

}  // namespace holdfast::bench
