// The number formats that a training computes in, as one value, and what follows from it.
// docs/precisions_and_optimizers.md has the table of formats and devices.
//
//   const Precision precision = parse_precision("fp16");
//   require_supported(precision, device);        // before anything is built
//   set_math_mode(precision);                    // once per process
//   if (needs_scaler(precision)) scaler.emplace(device);   // grad_scaler.h
//
// Weights are FP32 in every precision, so a checkpoint fits all of them. Another precision has other bits:
// record it with state.option("precision", …). Errors: UsageError, one line with the possible choices.
// Threads: pure functions. set_math_mode() changes the whole process: call it on the training thread.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

enum class Precision { fp32, tf32, fp16, bf16 };

// "fp32", "tf32", "fp16", "bf16".
HOLDFAST_EXPORT Precision parse_precision(std::string_view word);
HOLDFAST_EXPORT std::string_view word_of(Precision precision);

// The properties of a device that decide what it can compute. Plain values, so that tests need no device.
struct DeviceTraits {
  c10::DeviceType type = c10::DeviceType::CPU;
  std::string name = "this CPU";
  int capability = 0;  // NVIDIA's compute capability, 10 * major + minor: 70 is V100 (P3), 80 is A100 (P4d)
};

// Asks the driver. UsageError for a CUDA device that does not exist.
HOLDFAST_EXPORT DeviceTraits traits_of(c10::Device device);

// In the order of the enumeration. fp32 is always included.
HOLDFAST_EXPORT std::vector<Precision> supported_on(const DeviceTraits& device);
// Throws UsageError, which names the device, what the precision needs, and the precisions that the device
// supports.
HOLDFAST_EXPORT void require_supported(Precision precision, const DeviceTraits& device);
HOLDFAST_EXPORT void require_supported(Precision precision, c10::Device device);

// Switches TF32 in cuBLAS and cuDNN on for tf32 and off for all others, so that their FP32 parts are exact.
// (By default LibTorch allows TF32 in cuDNN's convolutions.) No effect on a CPU.
HOLDFAST_EXPORT void set_math_mode(Precision precision);

// The type that autocast casts to. Empty: no autocast.
HOLDFAST_EXPORT std::optional<c10::ScalarType> autocast_type(Precision precision);

// True for fp16: without a loss scale its gradients underflow.
HOLDFAST_EXPORT bool needs_scaler(Precision precision);

}}  // namespace holdfast::v0_2
