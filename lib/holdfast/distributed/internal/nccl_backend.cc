#include "holdfast/distributed/internal/nccl_backend.h"

#ifdef HOLDFAST_WITH_NCCL
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#else
#include "holdfast/base/error.h"
#endif

namespace holdfast::inline v1 {

#ifdef HOLDFAST_WITH_NCCL
c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int world_size, Duration timeout) {
  const auto settings = c10d::ProcessGroupNCCL::Options::create();
  settings->timeout = std::chrono::ceil<std::chrono::milliseconds>(timeout);
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, world_size, settings);
}

void finish_nccl(c10d::Backend& nccl, c10::Device device) {
  const c10::cuda::OptionalCUDAGuard guard(device.has_index() ? std::optional(device) : std::nullopt);
  c10::cuda::device_synchronize();
  static_cast<c10d::ProcessGroupNCCL&>(nccl).shutdown();
}
#else
c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>&, int, int, Duration) {
  throw UsageError(
      "several ranks on GPUs need a build with CUDA and NCCL: cmake -DHOLDFAST_CUDA=ON, with nccl.h beside "
      "LibTorch "
      "(cmake/bootstrap --cuda) or in the CUDA toolkit");
}

void finish_nccl(c10d::Backend&, c10::Device) {}
#endif

}  // namespace holdfast::inline v1
