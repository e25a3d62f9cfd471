#include "holdfast/kernels/internal/counters.h"

#include <ATen/ops/zeros.h>

#ifdef HOLDFAST_WITH_CUDA
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <mutex>
#endif

namespace holdfast { inline namespace v0_2 { namespace kernels::internal {
namespace {

// A constant, not the number of cores: it decides the order of sums, and so the bits.
constexpr int kCpuMultiprocessors = 8;

at::Tensor fresh(c10::Device device, int count) {
  return at::zeros({count}, at::TensorOptions(device).dtype(at::kInt));
}

}  // namespace

#ifndef HOLDFAST_WITH_CUDA
at::Tensor counters(c10::Device device, int count) { return fresh(device, count); }
int multiprocessors_of(c10::Device) { return kCpuMultiprocessors; }
#else
at::Tensor counters(c10::Device device, int count) {
  constexpr int kAtLeast = 1024;
  if (!device.is_cuda()) return fresh(device, count);
  // Kernels of two streams may run at the same time, so each stream has counters of its own.
  const auto stream = c10::cuda::getCurrentCUDAStream(device.index());
  static std::mutex mutex;
  static auto& kept =
      *new std::map<std::pair<c10::DeviceIndex, c10::StreamId>, at::Tensor>();  // never freed: CUDA may shut
                                                                                // down first
  const std::lock_guard lock(mutex);
  at::Tensor& own = kept[{stream.device_index(), stream.id()}];
  // Each kernel leaves its counters at zero, so they need no clearing.
  if (own.defined() && own.numel() >= count) return own;
  const bool capturing = c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
  // Kept counters would be allocated in the graph's memory pool, which may be freed with the graph.
  if (capturing) return fresh(device, count);
  own = fresh(device, std::max(count, kAtLeast));
  return own;
}

int multiprocessors_of(c10::Device device) {
  if (!device.is_cuda()) return kCpuMultiprocessors;
  int count = 0;
  // One multiprocessor gives a slow launch, and still a right one.
  if (cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device.index()) != cudaSuccess) return 1;
  return count;
}
#endif

}}}  // namespace holdfast::v0_2::kernels::internal
