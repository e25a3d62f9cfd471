// The machine that the figures belong to.
//
// Errors: none; an unknown property reads "unknown". Threads: free functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace holdfast::bench {

struct Machine {
  std::string cpu;
  int cores = 0;  // available to this process
  std::uint64_t memory_bytes = 0;
  std::string kernel;
  std::string file_system;  // of the directory that is written to: "ext4 on /dev/vda"
  std::string gpu;          // empty: none
  std::string libtorch;
  std::string time;  // start of the bench, UTC
  std::string one_line() const;
};

Machine this_machine(const std::filesystem::path& directory);
std::uint64_t available_memory();             // bytes; 0 if unknown
std::uint64_t status_value(const char* key);  // bytes from /proc/self/status: "VmRSS", "VmHWM"

}  // namespace holdfast::bench
