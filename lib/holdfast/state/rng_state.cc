#include "holdfast/state/rng_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <mutex>
#include <span>

#include "holdfast/base/error.h"
#include "holdfast/snapshot/digest.h"

namespace holdfast { inline namespace v0_2 {

std::vector<NamedGenerator> default_generators(std::span<const c10::DeviceIndex> gpus) {
  std::vector<NamedGenerator> streams = {{"cpu", at::detail::getDefaultCPUGenerator()}};
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    streams.push_back({.name = "gpu." + std::to_string(i),
                       .generator = at::globalContext().defaultGenerator({at::kCUDA, gpus[i]}),
                       .optional = true,  // a run may go on with more GPUs than it had, or with its first one
                       .older_name = "cuda." + std::to_string(gpus[i])});
  }
  return streams;
}

at::Tensor rng_state(const NamedGenerator& stream) {
  at::Generator generator = stream.generator;
  // A generator has a lock of its own for its state.
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void check_rng_state(const NamedGenerator& stream, const at::Tensor& state) {
  at::Generator generator = stream.generator;
  const std::lock_guard lock(generator.mutex());
  // set_state() on a clone: a wrong state must not destroy the stream of a program that catches the error.
  try {
    generator.clone().set_state(state);
  } catch (const c10::Error& error) {
    throw RefusedError("the recorded state of random stream 'rng/" + stream.name +
                       "' does not fit: " + std::string(error.what_without_backtrace()));
  }
}

void set_rng_state(const NamedGenerator& stream, const at::Tensor& state) {
  at::Generator generator = stream.generator;
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

void branch_off(const NamedGenerator& stream, std::uint64_t number) {
  // The new seed depends on the whole state, so a resumed run branches into other streams than its first
  // start. 0x9e3779b97f4a7c15 (2^64 / golden ratio) spreads small numbers over all bits of the seed.
  const at::Tensor state = rng_state(stream).contiguous();
  const Digest digest = digest_of(std::as_bytes(std::span(
      static_cast<const std::uint8_t*>(state.const_data_ptr()), static_cast<std::size_t>(state.nbytes()))));
  std::uint64_t seed = 0;
  std::memcpy(&seed, digest.bytes.data(), sizeof seed);
  at::Generator generator = stream.generator;
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed + 0x9e3779b97f4a7c15 * number);
}

}}  // namespace holdfast::v0_2
