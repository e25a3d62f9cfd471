// Two hosts with a cable between them: network namespaces and a veth pair, which can be cut silently, one way
// or both, as a firewall or a broken switch does, or loudly.
//
// Needs `ip`, and root or user namespaces; nothing is left behind, also when the test is killed.
// Errors: std::runtime_error with the command that failed. Threads: one thread per object.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "support/subprocess.h"

namespace holdfast::test {

class TwoHosts {
 public:
  // For GTEST_SKIP; nullopt: they can be had.
  static std::optional<std::string> why_not();

  TwoHosts();

  // Runs a command on host 0 or 1.
  std::vector<std::string> on(int host, const std::vector<std::string>& command) const;
  static std::string address(int host) { return "10.98.0." + std::to_string(host + 1); }
  static std::string interface(int host) { return "veth" + std::to_string(host); }

  // What that host sends arrives nowhere; it is told nothing.
  void cut_from(int host) const;
  void pull_the_plug() const;
  void mend() const;
  // To every process of that host.
  void signal_all(int host, int signal) const;

 private:
  void run(int host, const std::vector<std::string>& command) const;

  std::unique_ptr<Subprocess> hosts_[2];  // processes that hold the namespaces
};

}  // namespace holdfast::test
