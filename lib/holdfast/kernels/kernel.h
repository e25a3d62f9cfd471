// Runs a kernel (device_code.h describes them) on the device of its tensors.
//
//   inline constexpr kernels::Source kDoubled{"holdfast/data/internal/doubled.h", &kernels::texts_of_data};
//   kernels::launch<kDoubled>(Doubled{in, out, n}, {.x = blocks}, tensor.device());
//
// On a GPU the first launch of a kernel compiles its text with NVRTC, in about half a second, together with
// the other kernels of its file for the same type of elements, and keeps the result for later processes
// (kernel_cache.h). Make it before a capture, or call prepare(). On a CPU the same source runs in as many
// threads as torch has. Equal launches give equal bits. Requires: the kernel's pointers are valid on that
// device until the stream has run it. Errors: UsageError for other devices, or CUDA in a build without it;
// Error, which names a kernel that does not compile or cannot be launched. Threads: any; threads that need
// the same kernel wait for its compilation.
#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "holdfast/kernels/device_code.h"
#include "holdfast/kernels/source.h"

namespace holdfast { inline namespace v0_2 { namespace kernels {

// Number of blocks; each has Kernel::kThreads threads.
struct Grid {
  int x = 1;
  int y = 1;
};

// `type` is the struct's full C++ name, as NVRTC needs it.
struct KernelName {
  const Source* source;
  std::string type;
};
// All kernels that this program can launch.
const std::vector<KernelName>& known_kernels();

namespace internal {

template <class Type>
constexpr const char* signature_with() {
  return __PRETTY_FUNCTION__;
}
bool make_known(const Source& source, const char* signature);
template <const Source& kSource, class Kernel>
inline const bool kKnown = make_known(kSource, signature_with<Kernel>());

void launch_on_gpu(const Source& source, const char* signature, const void* kernel, int threads, Grid grid,
                   c10::Device device);
// Compiles the kernels of the source whose first template argument is the type of `element`'s signature.
void prepare_on_gpu(const Source& source, const char* element, c10::Device device);
// Calls `work` in several threads. Each takes numbers of blocks from `next` until none is left.
void run_blocks(Grid grid, const std::function<void(std::atomic<std::int64_t>& next)>& work);

}  // namespace internal

// Compiles now what the first launches would compile: the kernels of this program in that source for elements
// of this type. Does nothing on a CPU. Errors and threads: as launch().
template <const Source& kSource, class Element>
void prepare(c10::Device device) {
  if (!device.is_cpu()) internal::prepare_on_gpu(kSource, internal::signature_with<Element>(), device);
}

template <const Source& kSource, class Kernel>
void launch(const Kernel& kernel, Grid grid, c10::Device device) {
  static_cast<void>(&internal::kKnown<kSource, Kernel>);
  if (!device.is_cpu()) {
    internal::launch_on_gpu(kSource, internal::signature_with<Kernel>(), &kernel, Kernel::kThreads, grid,
                            device);
    return;
  }
  internal::run_blocks(grid, [&](std::atomic<std::int64_t>& next) {
    const auto shared = std::make_unique<typename Kernel::Shared>();
    for (std::int64_t block; (block = next++) < std::int64_t{grid.x} * grid.y;) {
      const Place first{0, static_cast<int>(block % grid.x), static_cast<int>(block / grid.x)};
      run_block_from<0>(kernel, first, *shared);
    }
  });
}

}}}  // namespace holdfast::v0_2::kernels
