// A machine of bench_handover: `holdfast supervise` around the trainer, as a process of this one.
//
// Errors: Error if it ends, or does not come to where it is waited for; with its last words. Threads: one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "support/subprocess.h"
#include "trainer.h"

namespace holdfast::bench {

struct MachineOptions {
  std::filesystem::path directory = {};  // the run directory
  std::filesystem::path home = {};       // of its mirror; empty: none
  std::filesystem::path told = {};       // a new file, for what its trainer tells
  std::uint64_t state = 0;               // bytes
  int threads = 1;
  bool standby = false;
};

class Machine {
 public:
  explicit Machine(const MachineOptions& options);

  Told wait_for(const std::string& name, const std::function<bool(const Told&)>& is = {});
  // Returns once it is a standby that has a checkpoint at hand.
  void wait_until_warm();
  // A save, and returns when it is durable.
  void save();
  // Steps a second from now on, for so many seconds.
  double rate(double seconds);
  // SIGTERM. Returns its moment.
  double tell_to_stop();
  // Waits for the end. Error unless the exit code is 75.
  void finish();
  // User and system time of all its processes up to now, in seconds.
  double processor_seconds() const;

 private:
  [[noreturn]] void fail(const std::string& what);

  const MachineOptions options_;
  test::Subprocess process_;
};

}  // namespace holdfast::bench
