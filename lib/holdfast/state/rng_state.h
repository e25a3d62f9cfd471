// Random number streams: the default generators of the CPU and of the GPUs that train, and private ones that
// a program adds. Each is stored as LibTorch's state tensor (bytes; 5056 for the CPU), named "rng/cpu",
// "rng/gpu.0", "rng/<name>".
//
// Errors: check_rng_state() throws RefusedError, which names the stream, if its generator does not accept the
// state; set_rng_state() requires one that it accepts. Threads: each call holds the generator's mutex.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

struct NamedGenerator {
  std::string name;  // "cpu"
  at::Generator generator;
  bool optional = false;        // the number of these depends on the machine (GPUs)
  std::string older_name = {};  // in files of Holdfast 0.1; empty: the same
};

// "cpu", then "gpu.0" for the first of `gpus`, "gpu.1" for the second. The names do not say where a GPU sits
// in its machine, so a run that trained on the fourth may go on with another machine's first.
HOLDFAST_EXPORT std::vector<NamedGenerator> default_generators(std::span<const c10::DeviceIndex> gpus);

HOLDFAST_EXPORT at::Tensor rng_state(const NamedGenerator& stream);
// Tries the state on a copy. The stream itself does not change.
HOLDFAST_EXPORT void check_rng_state(const NamedGenerator& stream, const at::Tensor& state);
HOLDFAST_EXPORT void set_rng_state(const NamedGenerator& stream, const at::Tensor& state);
// Sets the stream to a new state: a function of its present state and `number`.
HOLDFAST_EXPORT void branch_off(const NamedGenerator& stream, std::uint64_t number);

}}  // namespace holdfast::v0_2
