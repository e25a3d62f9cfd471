#include "holdfast/base/process/gpu_processes.h"

#include <array>
#include <vector>

#include "holdfast/base/system/loaded_library.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// Types of nvml.h. That library keeps its binary interface; the numbers in names are versions of it.
using NvmlDevice = void*;
struct NvmlProcess {
  unsigned id;
  unsigned long long memory;  // NOLINT(google-runtime-int): nvml.h's; all ones: not known
  unsigned gpu_instance;
  unsigned compute_instance;
};
struct NvmlUse {
  unsigned gpu;  // share of the last time in which a kernel ran, in percent
  unsigned memory;
};
constexpr int kNvmlSuccess = 0;
constexpr unsigned kMostGpuProcesses = 256;

}  // namespace

std::string gpu_processes(const char* library) {
  const LoadedLibrary nvml(library);
  auto* const init = nvml.function<int()>("nvmlInit_v2");
  auto* const count_of = nvml.function<int(unsigned*)>("nvmlDeviceGetCount_v2");
  auto* const device_at = nvml.function<int(unsigned, NvmlDevice*)>("nvmlDeviceGetHandleByIndex_v2");
  auto* const name_of = nvml.function<int(NvmlDevice, char*, unsigned)>("nvmlDeviceGetUUID");
  auto* const use_of = nvml.function<int(NvmlDevice, NvmlUse*)>("nvmlDeviceGetUtilizationRates");
  auto* const processes_of =
      nvml.function<int(NvmlDevice, unsigned*, NvmlProcess*)>("nvmlDeviceGetComputeRunningProcesses_v3");
  if (init == nullptr || count_of == nullptr || device_at == nullptr) {
    return "no GPU: there is no " + std::string(library) + "\n";
  }
  unsigned count = 0;
  if (init() != kNvmlSuccess || count_of(&count) != kNvmlSuccess) return "NVML does not answer\n";
  std::string text;
  for (unsigned i = 0; i < count; ++i) {
    NvmlDevice device = nullptr;
    text += "GPU " + std::to_string(i);
    if (device_at(i, &device) != kNvmlSuccess) {
      text += ": does not answer\n";
      continue;
    }
    std::array<char, 96> name{};
    if (name_of != nullptr && name_of(device, name.data(), name.size()) == kNvmlSuccess) {
      text += " " + printable(name.data());
    }
    NvmlUse use{};
    if (use_of != nullptr && use_of(device, &use) == kNvmlSuccess) {
      text += ": a kernel runs " + std::to_string(use.gpu) + " % of the time";
    }
    text += "\n";
    std::vector<NvmlProcess> processes(kMostGpuProcesses);
    unsigned found = kMostGpuProcesses;
    if (processes_of == nullptr || processes_of(device, &found, processes.data()) != kNvmlSuccess) {
      text += "  its processes are not known\n";
      continue;
    }
    for (unsigned k = 0; k < found && k < kMostGpuProcesses; ++k) {
      // In a container the driver may name processes by the host's numbers, or not at all.
      text += "  process " + std::to_string(processes[k].id);
      if (processes[k].memory != ~0ULL) text += ", " + format_bytes(processes[k].memory);
      text += "\n";
    }
    if (found == 0) text += "  no process that this container may see\n";
  }
  return text;
}

}}  // namespace holdfast::v0_2
