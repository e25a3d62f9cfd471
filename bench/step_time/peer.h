// A training in Python (bench/peers/step_time.py) that makes steps when it is asked to.
//
// Errors: Error with the last thing it said, when it ends early or answers nonsense. Threads: one thread.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace holdfast::bench {

struct Window {
  double seconds = 0;
  double loss = 0;  // of the last step
};

class Peer {
 public:
  // Waits until it is ready. `errors`: a file for its standard error.
  Peer(const std::vector<std::string>& command, std::filesystem::path errors);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  Window steps(int count);
  const std::string& version() const { return version_; }  // of PyTorch

 private:
  std::string read_line();
  [[noreturn]] void fail();

  std::filesystem::path errors_;
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::string buffer_;
  std::string version_;
};

}  // namespace holdfast::bench
