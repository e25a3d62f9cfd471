// Random number streams: the default CPU generator, every available CUDA generator, and private ones that a
// program adds. Each is stored as LibTorch's state tensor (bytes; 5056 for the CPU), named "rng/cpu",
// "rng/cuda.0", "rng/<name>".
//
// Errors: RefusedError, which names the stream, if its generator does not accept a state. Threads: each call
// holds the generator's mutex.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace holdfast { inline namespace v0_2 {

struct NamedGenerator {
  std::string name;  // "cpu"
  at::Generator generator;
  bool optional = false;  // the number of these depends on the machine (CUDA devices)
};

std::vector<NamedGenerator> default_generators();

at::Tensor rng_state(const NamedGenerator& stream);
// Tries the state on a copy. The stream itself does not change.
void check_rng_state(const NamedGenerator& stream, const at::Tensor& state);
void set_rng_state(const NamedGenerator& stream, const at::Tensor& state);
// Sets the stream to a new state: a function of its present state and `number`.
void branch_off(const NamedGenerator& stream, std::uint64_t number);

}}  // namespace holdfast::v0_2
