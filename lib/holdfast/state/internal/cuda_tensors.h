// What the state needs of CUDA, in terms that hold without it: with HOLDFAST_CUDA=OFF no tensor is in CUDA
// memory, and nothing here costs anything. How a save is staged from devices: snapshot/device_copy.h.
//
// Errors: Error naming the device; also for a call while a CUDA graph is captured, when no state is to be
// had. Threads: the training thread, whose current streams are those that train. PrepareImage functions: any.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "holdfast/snapshot/device_copy.h"

namespace holdfast::inline v1::internal {

#ifdef HOLDFAST_WITH_CUDA
inline bool in_cuda(const at::Tensor& tensor) { return tensor.is_cuda(); }
#else
constexpr bool in_cuda(const at::Tensor& /*tensor*/) { return false; }
#endif

// What lasts from save to save: a stream for copies on each device, memory to copy through, what was said.
class CudaStaging;
std::shared_ptr<CudaStaging> make_cuda_staging();  // nullptr without CUDA

// Tensors for one save, gathered and then begun.
class CudaTensors {
 public:
  // Requires in_cuda(tensor). `early`: it may change before the next update.
  void add(std::string name, const at::Tensor& tensor, std::span<std::byte> to, bool early);
  bool empty() const { return items_.empty(); }
  // As DeviceCopy::begin. Once.
  std::unique_ptr<LateCopy> begin(const std::shared_ptr<CudaStaging>& staging, std::span<std::byte> image,
                                  NextUpdate update);

 private:
  struct Item {
    std::string name;
    at::Tensor tensor;  // a detached alias: keeps the memory that it has now
    std::span<std::byte> to;
    bool early;
  };
  std::vector<Item> items_;
};

// Copies to and from host memory in logical order, many on their way at once on the current streams; wait()
// ends them. The host's bytes stay where they are until then; the destructor waits, too.
class CudaTransfers {
 public:
  CudaTransfers() = default;
  ~CudaTransfers();
  CudaTransfers(const CudaTransfers&) = delete;
  CudaTransfers& operator=(const CudaTransfers&) = delete;

  void fetch(const at::Tensor& from, std::span<std::byte> to);
  void send(std::span<const std::byte> from, const at::Tensor& to);
  void wait();

 private:
  void hold(at::Tensor tensor, bool made_here);

  std::vector<at::Tensor> held_;
  std::size_t made_ = 0;  // bytes of device memory that was made for it
};

// Page-locks images, so that a device copies into them by itself; said once where that fails.
PrepareImage cuda_image_preparation();

}  // namespace holdfast::inline v1::internal
