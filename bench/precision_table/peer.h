// A training in Python (bench/peers/precision_table.py) that makes steps on request.
//
// Errors: Error with its last output, if it ends early or sends nonsense. Threads: one thread.
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
  // Waits until it is ready. `root`: the sources; `folder`: where write_job() (peer_job.h) wrote; `kind`: the
  // peer's mode, as that program names it. `meanwhile`: see ChildOptions.
  Peer(const std::filesystem::path& root, const std::filesystem::path& folder, const std::string& kind,
       std::function<void()> meanwhile = {});

  Window steps(int count);
  const std::string& version() const { return version_; }  // of PyTorch

 private:
  Child child_;
  std::string version_;
};

}  // namespace holdfast::bench
