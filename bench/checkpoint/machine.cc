#include "machine.h"

#include <ATen/Context.h>
#include <sched.h>
#include <sys/utsname.h>
#include <torch/csrc/api/include/torch/version.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "holdfast/base/clock.h"
#include "holdfast/base/text.h"
#include "statistics.h"
#include "volume.h"

namespace holdfast::bench {
namespace {

// The number after `key:` in kibibytes, as /proc writes it.
std::uint64_t kibibytes_of(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(key + ":")) return std::stoull(line.substr(key.size() + 1)) * 1024;
  }
  return 0;
}

std::string cpu_model() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown CPU";
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

std::string Machine::one_line() const {
  return cpu + ", " + std::to_string(cores) + (cores == 1 ? " core, " : " cores, ") +
         fixed(static_cast<double>(memory_bytes) / (1u << 30), 0) + " GiB, " + file_system + ", " + kernel +
         (gpu.empty() ? "" : ", " + gpu) + ", LibTorch " + libtorch;
}

Machine this_machine(const std::filesystem::path& directory) {
  Machine machine;
  machine.cpu = cpu_model();
  machine.cores = usable_cores();
  machine.memory_bytes = kibibytes_of("/proc/meminfo", "MemTotal");
  utsname names{};
  machine.kernel = ::uname(&names) == 0 ? std::string(names.sysname) + " " + names.release : "unknown kernel";
  machine.file_system = file_system_of(directory);
  if (at::hasCUDA())
    machine.gpu = std::to_string(at::detail::getCUDAHooks().deviceCount()) + " CUDA device(s)";
  machine.libtorch = TORCH_VERSION;
  machine.time = format_utc(std::chrono::system_clock::now());
  return machine;
}

std::uint64_t available_memory() { return kibibytes_of("/proc/meminfo", "MemAvailable"); }

std::uint64_t status_value(const char* key) { return kibibytes_of("/proc/self/status", key); }

}  // namespace holdfast::bench
