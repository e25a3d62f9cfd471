// The Python with which tests ask foreign libraries (torch, safetensors, h5py) to read what Holdfast wrote. Tried
// in turn: $HOLDFAST_TEST_PYTHON, .deps/interop/bin/python3 (cmake/bootstrap --interop), /usr/bin/python3.
//
//   const ForeignPython python("torch");
//   if (!python) GTEST_SKIP() << python.why_not();
//   const Ended ended = python.run({"-c", script, file});
//
// Errors: none; a missing library is why_not(). Threads: one.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "support/subprocess.h"

namespace holdfast::test {

class ForeignPython {
 public:
  // `modules`: "torch, numpy". Their versions go to the test's output.
  explicit ForeignPython(const std::string& modules) {
    std::vector<std::string> candidates;
    if (const char* const given = std::getenv("HOLDFAST_TEST_PYTHON")) candidates.emplace_back(given);
    candidates.emplace_back(HOLDFAST_SOURCE_DIR "/.deps/interop/bin/python3");
    candidates.emplace_back("/usr/bin/python3");
    for (const std::string& candidate : candidates) {
      if (!std::filesystem::exists(candidate)) continue;
      const Ended probe = Subprocess({candidate, "-W", "ignore", "-c",
                                      "import " + modules + "\nfor m in (" + modules +
                                          ",): print(m.__name__, m.__version__)"})
                              .wait();
      if (probe.exit_code == 0) {
        program_ = candidate;
        versions_ = probe.out;
        return;
      }
    }
    why_not_ = "no python3 here has " + modules + " (cmake/bootstrap --interop)";
  }

  explicit operator bool() const { return !program_.empty(); }
  const std::string& why_not() const { return why_not_; }
  const std::string& program() const { return program_; }
  const std::string& versions() const { return versions_; }
  Ended run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {program_, "-W", "ignore"});
    return Subprocess(std::move(arguments)).wait();
  }

 private:
  std::string program_;
  std::string versions_;
  std::string why_not_;
};

}  // namespace holdfast::test
