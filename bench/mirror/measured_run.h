// A program from start to end: wall time, its own processor time (not that of its children), and its peak
// memory.
//
// Errors: Error if it cannot be started or fails. Threads: one thread per object.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace holdfast::bench {

struct Measured {
  double seconds = 0;
  double processor_seconds = 0;
  double peak_megabytes = 0;  // resident; looked at every 2 ms
};

class MeasuredRun {
 public:
  // `errors`: a file for its standard output and error. `quiet`: a kill by stop() is no failure.
  MeasuredRun(const std::vector<std::string>& command, std::filesystem::path errors);
  ~MeasuredRun();  // kills it
  MeasuredRun(const MeasuredRun&) = delete;
  MeasuredRun& operator=(const MeasuredRun&) = delete;

  Measured wait();
  // SIGTERM, then waits; any end will do.
  Measured stop();

 private:
  Measured watch(bool must_succeed);

  std::string program_;
  std::filesystem::path errors_;
  pid_t pid_ = -1;
  double begin_ = 0;
};

}  // namespace holdfast::bench
