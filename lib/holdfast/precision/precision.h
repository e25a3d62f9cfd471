// The numbers that a training computes with, as one value, and what it implies:
//
//          convolutions, products   kept in FP32               scaler   runs on
//   fp32   exact FP32               everything                 no       everything
//   tf32   TF32 tensor cores        everything (memory)        no       NVIDIA from sm_80 (A100, P4d)
//   fp16   FP16 by autocast         weights, slots, norms      yes      NVIDIA from sm_60; CPU, slowly
//   bf16   BF16 by autocast         weights, slots, norms      no       NVIDIA from sm_80; CPU
//
// The weights of every precision are FP32: a checkpoint fits any of them. On a CPU, autocast in FP16 computes
// everything a network needs (convolutions included), but is slower than FP32 without AVX512-FP16 or AMX: it
// is there for rehearsals. BF16 gains where the CPU has AVX512-BF16 or AMX.
//
//   const Precision precision = parse_precision("fp16");
//   require_supported(precision, device);        // before anything is built
//   set_math_mode(precision);                    // once a process
//   std::optional<GradScaler> scaler;            // grad_scaler.h
//   if (needs_scaler(precision)) scaler.emplace(device);
//
// The same run in another precision has other bits: record it, state.option("precision", …).
// Errors: UsageError, one line with the choices there are.
// Threads: pure functions, except set_math_mode: the process's own setting, on the training thread.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::inline v1 {

enum class Precision { fp32, tf32, fp16, bf16 };

// "fp32", "tf32", "fp16", "bf16".
Precision parse_precision(std::string_view word);
std::string_view word_of(Precision precision);

// What of a device decides what it can compute in; plain values, so that the rules hold without the device.
struct DeviceTraits {
  c10::DeviceType type = c10::DeviceType::CPU;
  std::string name = "this CPU";
  int capability = 0;  // NVIDIA's, 10 · major + minor: 70 is V100 (P3), 80 is A100 (P4d)
};

// Asks the driver. UsageError for a CUDA device that is not there.
DeviceTraits traits_of(c10::Device device);

// In the order of the enumeration; fp32 is always among them.
std::vector<Precision> supported_on(const DeviceTraits& device);
// UsageError that names the device, what the precision would need, and the device's choices.
void require_supported(Precision precision, const DeviceTraits& device);
void require_supported(Precision precision, c10::Device device);

// TF32 in cuBLAS and cuDNN on for tf32, off for all others: what they keep in FP32 is exact. (LibTorch's own
// default lets cuDNN's convolutions run in TF32.) Without effect on a CPU.
void set_math_mode(Precision precision);

// The type that autocast casts to; none: no autocast.
std::optional<c10::ScalarType> autocast_type(Precision precision);

// FP16's gradients underflow without a loss scale.
bool needs_scaler(Precision precision);

// The layout in which convolutions are quick: channels_last for tensor cores and oneDNN, contiguous for exact
// FP32 on a GPU. Advice: nothing applies it by itself, and another layout has other bits.
c10::MemoryFormat advised_memory_format(Precision precision, c10::DeviceType device);

}  // namespace holdfast::inline v1
