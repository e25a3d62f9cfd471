// A training in Python (bench/peers/precision_table.py) that makes steps when it is asked to.
//
// Errors: Error with the last thing it said, when it ends early or answers nonsense. Threads: one thread.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "../shared/child.h"

namespace holdfast::bench {

struct Window {
  double seconds = 0;
  double loss = 0;  // of the last step
};

class Peer {
 public:
  // Waits until it is ready. `root`: of the sources, `folder`: where write_job() (peer_job.h) wrote, `kind`:
  // what to compare with, in the words of that program. `meanwhile`: see ChildOptions.
  Peer(const std::filesystem::path& root, const std::filesystem::path& folder, const std::string& kind,
       std::function<void()> meanwhile = {});

  Window steps(int count);
  const std::string& version() const { return version_; }  // of PyTorch

 private:
  Child child_;
  std::string version_;
};

}  // namespace holdfast::bench
