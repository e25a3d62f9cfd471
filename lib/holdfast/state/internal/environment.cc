#include "holdfast/state/internal/environment.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/version.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#ifdef HOLDFAST_WITH_CUDA
#include <cuda_runtime_api.h>
#endif
#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// oneDNN and MKL choose kernels and block sizes by the processor's model.
std::string processor() {
  std::string name;
#ifdef __x86_64__
  std::array<unsigned, 12> words{};
  // CPUID leaves 0x80000002 to 0x80000004 hold the name of the processor in 48 bytes.
  for (unsigned leaf = 0; leaf < 3; ++leaf) {
    unsigned* const part = words.data() + static_cast<std::size_t>(4) * leaf;
    if (__get_cpuid(0x80000002 + leaf, part, part + 1, part + 2, part + 3) == 0) break;
  }
  std::array<char, sizeof(words) + 1> text{};
  std::memcpy(text.data(), words.data(), sizeof(words));
  name = text.data();
  name.erase(0, name.find_first_not_of(' '));
  name.erase(name.find_last_not_of(' ') + 1);
  for (char& c : name) {
    // Virtual machines may name themselves with any byte.
    if (c < ' ' || c > '~') c = '?';
  }
  name += ", ";
#endif
  return name + at::get_cpu_capability();
}

#ifdef HOLDFAST_WITH_CUDA
// Asked once: the call takes milliseconds, and every save records the names.
std::string gpu_name(c10::DeviceIndex gpu) {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) return names;
    for (int i = 0; i < count; ++i) {
      cudaDeviceProp properties{};
      names.emplace_back(cudaGetDeviceProperties(&properties, i) == cudaSuccess ? properties.name
                                                                                : "unknown");
    }
    return names;
  }();
  const auto index = static_cast<std::size_t>(gpu);
  return index < kNames.size() ? kNames[index] : "unknown";
}
#endif

// "cuda (NVIDIA H100)", or the names of several.
std::string device_names(std::span<const c10::DeviceIndex> gpus) {
  if (gpus.empty()) return "cpu";
#ifdef HOLDFAST_WITH_CUDA
  std::string names;
  for (const c10::DeviceIndex gpu : gpus) names += (names.empty() ? "" : ", ") + gpu_name(gpu);
  return "cuda (" + names + ")";
#else
  return "cuda";
#endif
}

// LibTorch has two APIs for TF32. A query through one throws if the program has used the other.
template <class Ask>
std::string tf32(const Ask& ask) {
  try {
    return ask() ? "on" : "off";
  } catch (const c10::Error&) {
    return "by fp32_precision";
  }
}

}  // namespace

void put_environment(std::span<const c10::DeviceIndex> gpus, Attributes& out) {
  // Constant for the life of the process, and asked at every save.
  static const std::string kProcessor = processor();
  const at::Context& context = at::globalContext();
  const auto put = [&](const char* name, AttributeValue value) {
    out.set(std::string("environment.") + name, std::move(value), Role::record);
  };
  put("holdfast", std::string(HOLDFAST_VERSION));
  put("libtorch", std::string(TORCH_VERSION));
  put("processor", kProcessor);
  put("device", device_names(gpus));
  // ATen divides a sum among its threads, so their number decides the last bits.
  put("threads", static_cast<std::int64_t>(at::get_num_threads()));
  put("deterministic_algorithms", context.deterministicAlgorithms());
  put("mkldnn", context.userEnabledMkldnn());
  // Switches of CUDA say nothing about a run on the processor.
  if (!gpus.empty()) {
    put("cudnn_deterministic", context.deterministicCuDNN());
    // Benchmark mode chooses kernels by their measured speed, so two processes may compute with different
    // ones.
    put("cudnn_benchmark", context.benchmarkCuDNN());
    put("tf32_cublas", tf32([&] { return context.allowTF32CuBLAS(); }));
    put("tf32_cudnn", tf32([&] { return context.allowTF32CuDNN(); }));
  }
}

}}}  // namespace holdfast::v0_2::internal
