#ifdef HOLDFAST_WITH_CUDA

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <utility>

#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/state/internal/cuda_device.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// Bytes that stay free for the training: workspaces chosen later, a larger batch in an evaluation.
constexpr std::uint64_t kMargin = 512u << 20;
// Bytes, used as two halves. A half fills quickly, and is large enough to make the cost of calls negligible.
constexpr std::size_t kBounce = 16u << 20;

}  // namespace

CudaStaging::~CudaStaging() {
  // The result is ignored: at the end of a process CUDA may be gone already, and this memory with it.
  if (!bounce_.empty()) static_cast<void>(cudaFreeHost(bounce_.data()));
}

c10::cuda::CUDAStream CudaStaging::copying(c10::DeviceIndex device) {
  const std::lock_guard lock(mutex_);
  auto& stream = devices_[device].copying;
  // Pool streams have no implicit order with the default stream. Low priority: training kernels go first.
  if (!stream) stream = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device);
  return *stream;
}

// A failed allocation would make the allocator free its cached blocks and wait for the device. So room()
// agrees only if the device has free memory, or if the cache should hold the block that an earlier save
// returned.
bool CudaStaging::room(c10::DeviceIndex device, std::uint64_t bytes) {
  if (bytes == 0) return true;
  // cudaMemGetInfo() answers for the current device.
  const c10::cuda::CUDAGuard here(device);
  std::size_t free = 0;
  std::size_t total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  const std::lock_guard lock(mutex_);
  // The margin comes on top of the copy.
  if (free >= bytes + kMargin) return true;
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device);
  // What the allocator holds and does not use at the moment.
  const auto cached = static_cast<std::uint64_t>(
      std::max<std::int64_t>(0, stats.reserved_bytes[0].current - stats.allocated_bytes[0].current));
  if (devices_[device].had >= bytes && cached >= bytes) return true;
  if (!std::exchange(said_no_room_, true)) {
    log_info(
        "cuda:{} has {} free: no room for a copy of the state ({}) beside the training. Saves wait on the "
        "device before the next update, or in after_step where before_update() is not called",
        device, format_bytes(free), format_bytes(bytes));
  }
  return false;
}

void CudaStaging::had_room(c10::DeviceIndex device, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  auto& had = devices_[device].had;
  had = std::max(had, bytes);
}

bool CudaStaging::one_stream(const c10::cuda::CUDAStream& training) {
  const std::lock_guard lock(mutex_);
  PerDevice& device = devices_[training.device_index()];
  // The first stream that was seen counts as the training's.
  if (!device.training) device.training = training;
  if (*device.training != training && !std::exchange(device.several_streams, true)) {
    log_warning(
        "cuda:{}: after_step was called with another current stream than before: it is unknown on which one "
        "the state changes, so saves wait for the whole device from now on",
        training.device_index());
  }
  return !device.several_streams;
}

std::span<std::byte> CudaStaging::bounce() noexcept {
  const std::lock_guard lock(mutex_);
  // Tried once: if it fails, it would fail at every save.
  if (std::exchange(bounce_was_tried_, true)) return bounce_;
  try {
    const c10::cuda::CUDAStreamCaptureModeGuard mode(cudaStreamCaptureModeRelaxed);
    void* memory = nullptr;
    // Portable: all devices copy into the same memory.
    if (cudaHostAlloc(&memory, kBounce, cudaHostAllocPortable) == cudaSuccess) {
      bounce_ = {static_cast<std::byte*>(memory), kBounce};
    } else {
      static_cast<void>(cudaGetLastError());
    }
  } catch (const std::exception& error) {
    log_debug("no page-locked memory to copy through: {}", error.what());
  }
  return bounce_;
}

std::shared_ptr<CudaStaging> make_cuda_staging() { return std::make_shared<CudaStaging>(); }

}}}  // namespace holdfast::v0_2::internal

#endif
