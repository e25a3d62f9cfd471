// The Python peers (bench/peers/checkpoint.py), measured in turns with the others.
//
// Errors: Error with Python's message. Threads: one thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "../shared/child.h"
#include "training_state.h"

namespace holdfast::bench {

// Empty if they are installed; otherwise what is missing and how to install it.
std::string python_peers_missing();

class PythonPeers {
 public:
  // A process with its own state; waits until the state is built.
  PythonPeers(const StateSpec& spec, const std::filesystem::path& folder);

  const std::vector<std::string>& methods() const { return methods_; }
  const std::string& versions() const { return versions_; }  // "torch 2.11.0, …"

  struct Save {
    double blocked = 0;
    double durable = 0;
  };
  Save save(const std::string& method);
  // Seconds of `count` training steps with a save after the first, until that save is durable.
  double steps(int count, const std::optional<std::string>& method);

 private:
  Child child_;
  std::vector<std::string> methods_;
  std::string versions_;
};

}  // namespace holdfast::bench
