// Runs the program rclone once a call. Its output goes to `out`, its messages to the error text. The program
// dies with this process. `pace` is polled while it runs; an exception of it ends the program.
//
// Errors: HomeError if it cannot be started, or stays silent for longer than the pace's patience. Threads:
// one thread for all calls.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "holdfast/mirror/pace.h"

namespace holdfast { inline namespace v0_2 {

struct RcloneEnd {
  int code = 0;           // 128 + N after signal N
  std::string said = {};  // its last line on standard error, for people
  bool ok() const { return code == 0; }
  // Exit codes of rclone: 3: directory not found, 4: file not found.
  bool missing() const { return code == 3 || code == 4; }
};

class RcloneProgram {
 public:
  explicit RcloneProgram(Pace& pace) : pace_(pace) {}

  // `input`, at most 4096 bytes, becomes its standard input.
  RcloneEnd run(const std::vector<std::string>& arguments, const std::string& input = {},
                const std::function<void(std::span<const std::byte>)>& out = {}) const;
  // Runs it under the limit of the Pace, which is lifted when the Pace lifts it.
  RcloneEnd run_limited(std::vector<std::string> arguments) const;

 private:
  RcloneEnd run(const std::vector<std::string>& arguments, const std::string& input,
                const std::function<void(std::span<const std::byte>)>& out, bool limited) const;

  Pace& pace_;
};

}}  // namespace holdfast::v0_2
