#include "holdfast/state/rng_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/util/Exception.h>

#include <mutex>

#include "holdfast/base/error.h"

namespace holdfast::inline v1 {

std::vector<NamedGenerator> default_generators() {
  std::vector<NamedGenerator> streams = {{"cpu", at::detail::getDefaultCPUGenerator()}};
  if (!at::hasCUDA()) return streams;
  const auto devices = at::detail::getCUDAHooks().deviceCount();
  for (c10::DeviceIndex i = 0; i < devices; ++i) {
    streams.push_back(
        {"cuda." + std::to_string(i), at::globalContext().defaultGenerator({at::kCUDA, i}), true});
  }
  return streams;
}

at::Tensor rng_state(const NamedGenerator& stream) {
  at::Generator generator = stream.generator;
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void check_rng_state(const NamedGenerator& stream, const at::Tensor& state) {
  at::Generator generator = stream.generator;
  const std::lock_guard lock(generator.mutex());
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

}  // namespace holdfast::inline v1
