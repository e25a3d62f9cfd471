// The machine class that figures belong to.
//
// Errors: none; what cannot be found out reads "unknown". Threads: free functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace holdfast::bench {

struct Machine {
  std::string cpu;
  int cores = 0;  // that this process may use
  std::uint64_t memory_bytes = 0;
  std::string kernel;
  std::string file_system;  // of the directory written to: "ext4 on /dev/vda"
  std::string gpu;          // empty: none
  std::string libtorch;
  std::string time;  // when the bench began, UTC
  std::string one_line() const;
};

Machine this_machine(const std::filesystem::path& directory);
std::uint64_t available_memory();             // bytes; 0 when unknown
std::uint64_t status_value(const char* key);  // of /proc/self/status, in bytes: "VmRSS", "VmHWM"

}  // namespace holdfast::bench
