#include "holdfast/metrics/nvml.h"

#include <dlfcn.h>

#include <type_traits>
#include <utility>

namespace holdfast { inline namespace v0_2 {

// Functions and types of nvml.h. That library keeps its binary interface.
struct Nvml::Functions {
  struct Memory {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
  };
  struct Utilization {
    unsigned int gpu;  // percent
    unsigned int memory;
  };
  using Device = void*;

  int (*init)();
  int (*shutdown)();
  int (*count)(unsigned int*);
  int (*handle)(unsigned int, Device*);
  int (*memory)(Device, Memory*);
  int (*utilization)(Device, Utilization*);
};

// Loaded at run time: a machine without NVIDIA's driver has no such library.
Nvml::Nvml(const char* library) : library_(dlopen(library, RTLD_NOW | RTLD_LOCAL)) {
  if (library_ == nullptr) return;
  auto functions = std::make_unique<Functions>();
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library_, name));
    return function != nullptr;
  };
  // The names with _v2 are the ones that nvml.h maps the plain names to.
  if (find(functions->init, "nvmlInit_v2") && find(functions->shutdown, "nvmlShutdown") &&
      find(functions->count, "nvmlDeviceGetCount_v2") &&
      find(functions->handle, "nvmlDeviceGetHandleByIndex_v2") &&
      find(functions->memory, "nvmlDeviceGetMemoryInfo") &&
      find(functions->utilization, "nvmlDeviceGetUtilizationRates") && functions->init() == 0) {
    functions_ = std::move(functions);
    return;
  }
  dlclose(library_);
  library_ = nullptr;
}

Nvml::~Nvml() {
  if (library_ == nullptr) return;
  functions_->shutdown();
  dlclose(library_);
}

std::vector<GpuFigures> Nvml::read() const {
  std::vector<GpuFigures> gpus;
  unsigned int count = 0;
  if (library_ == nullptr || functions_->count(&count) != 0) return gpus;
  for (unsigned int index = 0; index < count; ++index) {
    Functions::Device device = nullptr;
    Functions::Memory memory{};
    // A GPU that fell off the bus fails here; the others still count.
    if (functions_->handle(index, &device) != 0 || functions_->memory(device, &memory) != 0) continue;
    GpuFigures gpu{
        .index = static_cast<int>(index), .memory_used = memory.used, .memory_total = memory.total};
    Functions::Utilization utilization{};
    // Some GPUs, such as slices of MIG, have no utilization.
    if (functions_->utilization(device, &utilization) == 0) gpu.utilization = utilization.gpu / 100.0;
    gpus.push_back(gpu);
  }
  return gpus;
}

}}  // namespace holdfast::v0_2
