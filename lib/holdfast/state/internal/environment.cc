#include "holdfast/state/internal/environment.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/version.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

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

std::string device_name(const std::string& device) {
#ifdef HOLDFAST_WITH_CUDA
  if (device == "cuda") {
    // Asked once: the call takes milliseconds, and every save records the name.
    static const std::string kName = [] {
      cudaDeviceProp properties{};
      return cudaGetDeviceProperties(&properties, 0) == cudaSuccess ? std::string(properties.name) : "";
    }();
    if (!kName.empty()) return device + " (" + kName + ")";
  }
#endif
  return device;
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

void put_environment(const std::string& device, Attributes& out) {
  // Constant for the life of the process, and asked at every save.
  static const std::string kProcessor = processor();
  const at::Context& context = at::globalContext();
  const auto put = [&](const char* name, AttributeValue value) {
    out.set(std::string("environment.") + name, std::move(value), Role::record);
  };
  put("holdfast", std::string(HOLDFAST_VERSION));
  put("libtorch", std::string(TORCH_VERSION));
  put("processor", kProcessor);
  put("device", device_name(device));
  // ATen divides a sum among its threads, so their number decides the last bits.
  put("threads", static_cast<std::int64_t>(at::get_num_threads()));
  put("deterministic_algorithms", context.deterministicAlgorithms());
  put("mkldnn", context.userEnabledMkldnn());
  // Switches of CUDA say nothing about a run on the processor.
  if (device == "cuda") {
    put("cudnn_deterministic", context.deterministicCuDNN());
    // Benchmark mode chooses kernels by their measured speed, so two processes may compute with different
    // ones.
    put("cudnn_benchmark", context.benchmarkCuDNN());
    put("tf32_cublas", tf32([&] { return context.allowTF32CuBLAS(); }));
    put("tf32_cudnn", tf32([&] { return context.allowTF32CuDNN(); }));
  }
}

}}}  // namespace holdfast::v0_2::internal
