// A run directory in memory, with a FaultFileSystem in front and a clock that tests move.
#pragma once

#include <string>
#include <vector>

#include "support/fake_clock.h"
#include "support/fault_file_system.h"
#include "support/memory_file_system.h"

namespace holdfast::test {

inline constexpr char kRun[] = "/vol/run";

struct RunDisk {
  MemoryFileSystem disk;
  FaultFileSystem faults{disk};
  FakeClock clock;

  RunDisk() { disk.mount("/vol"); }

  std::vector<std::string> checkpoints() const {
    std::vector<std::string> found;
    for (const std::string& name : disk.names(kRun)) {
      if (name.starts_with("step-") && name.ends_with(".h5")) found.push_back(name);
    }
    return found;
  }
  std::string path(const std::string& name) const { return std::string(kRun) + "/" + name; }
};

}  // namespace holdfast::test
