// A real Slurm: munged, slurmctld and two slurmd on this machine, in namespaces of their own.
//
// Needs root and Debian's slurm-wlm and munge; nothing is left behind, also when the test is killed.
// Errors: std::runtime_error with what Slurm said. Threads: one thread per object.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "support/subprocess.h"

namespace holdfast::test {

class Slurm {
 public:
  // For GTEST_SKIP; nullopt: `cluster` has started.
  static std::optional<std::string> start(std::unique_ptr<Slurm>& cluster);

  // Runs a command on the cluster; returns its output without the last newline.
  std::string run(const std::vector<std::string>& command,
                  const std::map<std::string, std::string>& environment = {}) const;
  // A field of `scontrol show job`, such as JobState; "" if Slurm does not know the job.
  std::string field(const std::string& job, const std::string& name) const;
  // Waits for that state. Slurm lets a requeued job wait for two minutes; this starts it after 3 s.
  bool reaches(const std::string& job, const std::string& state) const;
  // Kills the daemon of the job's first node's steps (slurmstepd), not what it has started.
  void kill_steps_of(const std::string& job) const;

 private:
  Slurm();
  std::vector<std::string> inside(const std::vector<std::string>& command) const;

  TemporaryFolder folder_;
  std::unique_ptr<Subprocess> cluster_;
};

}  // namespace holdfast::test
