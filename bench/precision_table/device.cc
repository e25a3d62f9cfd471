#include "device.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <memory>

#include "memory.h"

#ifdef HOLDFAST_WITH_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#endif

namespace holdfast::bench {
namespace {

// Listens to the CPU's allocator on one thread.
class Tensors final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*memory*/, std::int64_t size, std::size_t /*allocated*/,
                         std::size_t /*reserved*/, c10::Device device) override {
    if (!device.is_cpu()) return;
    now_ += static_cast<double>(size);
    most_ = std::max(most_, now_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  double most() const { return most_; }

 private:
  double now_ = 0;
  double most_ = 0;
};

double peak_of_cpu(const std::function<void()>& work) {
  const auto tensors = std::make_shared<Tensors>();
  const c10::DebugInfoGuard listening(c10::DebugInfoKind::PROFILER_STATE, tensors);
  work();
  return tensors->most();
}

}  // namespace

#ifdef HOLDFAST_WITH_CUDA

namespace {

constexpr std::size_t kAllPools = 0;  // StatType::AGGREGATE, which has moved between releases

}  // namespace

void wait_for(c10::Device device) {
  if (device.is_cuda()) c10::cuda::device_synchronize();
}

double memory_of(c10::Device device) {
  if (!device.is_cuda()) return 0;
  std::size_t free = 0;
  std::size_t all = 0;
  if (cudaMemGetInfo(&free, &all) != cudaSuccess) static_cast<void>(cudaGetLastError());
  return static_cast<double>(all);
}

double free_bytes(c10::Device device) {
  if (!device.is_cuda()) return free_of_machine();
  std::size_t free = 0;
  std::size_t all = 0;
  if (cudaMemGetInfo(&free, &all) != cudaSuccess) static_cast<void>(cudaGetLastError());
  return static_cast<double>(free);
}

double peak_bytes(c10::Device device, const std::function<void()>& work) {
  if (!device.is_cuda()) return peak_of_cpu(work);
  namespace allocator = c10::cuda::CUDACachingAllocator;
  allocator::resetPeakStats(device.index());
  const auto before = allocator::getDeviceStats(device.index()).allocated_bytes[kAllPools].current;
  work();
  wait_for(device);
  const auto most = allocator::getDeviceStats(device.index()).allocated_bytes[kAllPools].peak;
  return static_cast<double>(most - before);
}

void release_memory() { c10::cuda::CUDACachingAllocator::emptyCache(); }

#else

void wait_for(c10::Device /*device*/) {}
double memory_of(c10::Device /*device*/) { return 0; }
double free_bytes(c10::Device /*device*/) { return free_of_machine(); }
double peak_bytes(c10::Device /*device*/, const std::function<void()>& work) { return peak_of_cpu(work); }
void release_memory() {}

#endif

}  // namespace holdfast::bench
