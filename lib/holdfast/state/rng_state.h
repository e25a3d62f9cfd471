// Random number streams: the default CPU generator, every CUDA generator where CUDA is compiled in and
// available, and the private ones that a program adds. Stored as LibTorch's own state tensors (bytes; 5056
// for the CPU), "rng/cpu", "rng/cuda.0", "rng/<name>".
//
// Errors: RefusedError naming the stream for a state that its generator does not take.
// Threads: each call holds the generator's mutex.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace holdfast::inline v1 {

struct NamedGenerator {
  std::string name;  // "cpu"
  at::Generator generator;
  bool optional = false;  // another machine may have more or fewer of these (CUDA devices)
};

std::vector<NamedGenerator> default_generators();

at::Tensor rng_state(const NamedGenerator& stream);
// Tries the state on a copy; the stream itself goes on undisturbed.
void check_rng_state(const NamedGenerator& stream, const at::Tensor& state);
void set_rng_state(const NamedGenerator& stream, const at::Tensor& state);
// Another stream for each `number`, a function of it and of the stream's state.
void branch_off(const NamedGenerator& stream, std::uint64_t number);

}  // namespace holdfast::inline v1
