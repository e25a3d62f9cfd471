// Runs a kernel (device_code.h says how one is written) on the device where its tensors are.
//
//   inline constexpr kernels::Source kDoubled{"holdfast/data/internal/doubled.h", &kernels::texts_of_data};
//   kernels::launch<kDoubled>(Doubled{in, out, n}, {.x = blocks}, tensor.device());
//
// On a GPU the kernel goes to the current stream, and what the source is there in is text: the first launch
// of each kernel on each device compiles it with NVRTC, the library that LibTorch itself compiles with, in
// about half a second. Do that before a stream is captured. On a CPU the same source, compiled with the rest,
// runs block by block in as many threads as Torch has; the call returns when it is done. Equal launches give
// equal bits, whatever the number of threads.
//
// Requires: what the kernel's pointers mean is on that device and lives until the stream has come by.
// Errors: UsageError for a device that is neither, or CUDA in a build without it; Error naming the kernel
// when it does not compile (with the first lines of the compiler's log) or cannot be launched. Threads: any;
// a compilation is waited for by those who need the same kernel.
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

namespace holdfast::inline v1::kernels {

// Blocks of Kernel::kThreads threads.
struct Grid {
  int x = 1;
  int y = 1;
};

// A kernel as the compiler is asked for it: `type` is the struct's full name in C++.
struct KernelName {
  const Source* source;
  std::string type;
};
// All that this program can launch.
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
// Calls `work` in several threads, which take the numbers of blocks from what they are given.
void run_blocks(Grid grid, const std::function<void(std::atomic<std::int64_t>& next)>& work);

}  // namespace internal

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

}  // namespace holdfast::inline v1::kernels
