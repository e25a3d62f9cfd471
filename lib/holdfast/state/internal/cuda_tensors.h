// What TrainState needs of CUDA, in terms that compile without it. With HOLDFAST_CUDA=OFF no tensor is in
// CUDA memory and nothing here costs anything. snapshot/device_copy.h describes how a save is staged from
// devices.
//
// Errors: Error, which names the device; also for any call during the capture of a CUDA graph. Threads: the
// training thread, whose current streams are the streams that train. PrepareImage functions: any.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "holdfast/snapshot/device_copy.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// Always false with HOLDFAST_CUDA=OFF.
bool in_cuda(const at::Tensor& tensor);

// Kept from save to save: a copy stream per device, page-locked memory, and which warnings were logged.
class CudaStaging;
std::shared_ptr<CudaStaging> make_cuda_staging();  // nullptr without CUDA

// Gathers tensors for one save, then begins their copies.
class CudaTensors {
 public:
  // Requires in_cuda(tensor). `early`: the tensor may change before the next update.
  void add(std::string name, const at::Tensor& tensor, std::span<std::byte> to, bool early);
  bool empty() const { return items_.empty(); }
  // Like DeviceCopy::begin. Call once.
  std::unique_ptr<LateCopy> begin(const std::shared_ptr<CudaStaging>& staging, NextUpdate update);

 private:
  bool into_locked() const;

  struct Item {
    std::string name;
    at::Tensor tensor;  // a detached alias: keeps the present memory alive
    std::span<std::byte> to;
    bool early;
  };
  std::vector<Item> items_;
};

// Asynchronous copies between devices and host memory in logical order, on the current streams. wait() waits
// for all of them, and so does the destructor. Host bytes must stay in place until then.
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
  std::size_t made_ = 0;  // bytes of device memory allocated for packed copies
};

// Page-locks images, so that devices copy into them directly. Logs once if that fails.
PrepareImage cuda_image_preparation();

}}}  // namespace holdfast::v0_2::internal
