#include "holdfast/precision/precision.h"

#include <ATen/Context.h>

#include <array>
#include <utility>

#include "holdfast/base/error.h"

#ifdef HOLDFAST_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

namespace holdfast { inline namespace v0_2 {
namespace {

// In the order of the enumeration, because word_of() looks up by number.
constexpr std::array<std::pair<Precision, std::string_view>, 4> kWords = {{
    {Precision::fp32, "fp32"},
    {Precision::tf32, "tf32"},
    {Precision::fp16, "fp16"},
    {Precision::bf16, "bf16"},
}};

std::string listed(const std::vector<Precision>& choices) {
  std::string text;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) text += i + 1 == choices.size() ? " or " : ", ";
    text += word_of(choices[i]);
  }
  return text;
}

// FP16 needs native arithmetic (sm_60); tensor cores (sm_70) make it fast. BF16 below sm_80 is emulated and
// slower than FP32, so it is refused: a user who asks for it wants speed.
bool runs_on(Precision precision, const DeviceTraits& device) {
  // The processor computes FP16 and BF16 under autocast, and has no TF32.
  if (precision == Precision::fp32) return true;
  if (device.type == c10::kCPU) return precision != Precision::tf32;
  if (device.type != c10::kCUDA) return false;
  return device.capability >= (precision == Precision::fp16 ? 60 : 80);
}

std::string need_of(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      break;
    case Precision::tf32:
      return "an NVIDIA GPU of compute capability 8.0 (A100, P4d) or newer";
    case Precision::fp16:
      return "an NVIDIA GPU of compute capability 6.0 or newer, or a CPU";
    case Precision::bf16:
      return "an NVIDIA GPU of compute capability 8.0 (A100, P4d) or newer, or a CPU";
  }
  return "nothing";
}

}  // namespace

Precision parse_precision(std::string_view word) {
  for (const auto& [precision, name] : kWords) {
    if (word == name) return precision;
  }
  throw UsageError("'" + std::string(word) + "' is no precision: choose fp32, tf32, fp16 or bf16");
}

std::string_view word_of(Precision precision) { return kWords[static_cast<std::size_t>(precision)].second; }

DeviceTraits traits_of(c10::Device device) {
  DeviceTraits traits{.type = device.type()};
  if (device.is_cpu()) return traits;
  traits.name = device.str();
#ifdef HOLDFAST_WITH_CUDA
  if (device.is_cuda()) {
    // Without an index the device is the thread's current one.
    int index = device.index();
    cudaDeviceProp properties{};
    if ((index < 0 && cudaGetDevice(&index) != cudaSuccess) ||
        cudaGetDeviceProperties(&properties, index) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());  // clears the error, which the next CUDA call would report
                                              // otherwise
      throw UsageError("there is no device " + device.str() + " here");
    }
    traits.name = properties.name;
    traits.capability = 10 * properties.major + properties.minor;
  }
#else
  if (device.is_cuda()) throw UsageError("there is no device " + device.str() + ": built without CUDA");
#endif
  return traits;
}

std::vector<Precision> supported_on(const DeviceTraits& device) {
  std::vector<Precision> choices;
  for (const auto& [precision, name] : kWords) {
    if (runs_on(precision, device)) choices.push_back(precision);
  }
  return choices;
}

void require_supported(Precision precision, const DeviceTraits& device) {
  if (runs_on(precision, device)) return;
  std::string name = device.name;
  if (device.type == c10::kCUDA) {
    name += " (compute capability " + std::to_string(device.capability / 10) + "." +
            std::to_string(device.capability % 10) + ")";
  }
  throw UsageError(std::string(word_of(precision)) + " is not for " + name + ": it needs " +
                   need_of(precision) + "; here choose " + listed(supported_on(device)));
}

void require_supported(Precision precision, c10::Device device) {
  require_supported(precision, traits_of(device));
}

void set_math_mode(Precision precision) {
  // Both setters exist in every LibTorch since 2.7. The newer setFloat32Precision does not, and mixing the
  // two makes the getters of the older ones throw.
  at::globalContext().setAllowTF32CuBLAS(precision == Precision::tf32);
  at::globalContext().setAllowTF32CuDNN(precision == Precision::tf32);
}

std::optional<c10::ScalarType> autocast_type(Precision precision) {
  if (precision == Precision::fp16) return c10::ScalarType::Half;
  if (precision == Precision::bf16) return c10::ScalarType::BFloat16;
  return std::nullopt;
}

bool needs_scaler(Precision precision) { return precision == Precision::fp16; }

}}  // namespace holdfast::v0_2
