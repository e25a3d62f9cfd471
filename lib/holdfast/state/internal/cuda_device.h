// CUDA's implementation of snapshot/device_copy.h. Only in builds with HOLDFAST_CUDA.
//
// Lifetime: spare memory is allocated on the training stream. It is freed only after the host has seen its
// last copy end, so the caching allocator may reuse it at once, without record_stream. Tensors that are
// copied from live memory are held as long. Capture: polling must not break a graph capture in another
// thread. Calls that a global-mode capture forbids run in relaxed mode.
#pragma once

#ifdef HOLDFAST_WITH_CUDA

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "holdfast/snapshot/device_copy.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// Throws Error: "cuda:0: <what>: <CUDA's message>".
void check_cuda(cudaError_t result, c10::DeviceIndex device, const char* what);
// Copies between the current device and host memory, one copy for each piece of page-locked memory
// (DeviceCopy::kPiece). Asynchronous, but where a piece is locked in part (of an image with one rank's share
// only some pages are): CUDA refuses such a copy, so it goes through ordinary memory and waits.
cudaError_t copy_in_pieces(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                           cudaStream_t stream);

class CudaStaging {
 public:
  CudaStaging() = default;
  ~CudaStaging();
  CudaStaging(const CudaStaging&) = delete;
  CudaStaging& operator=(const CudaStaging&) = delete;

  // The device's stream for copies. It stays the same for all saves and does not synchronise with the default
  // stream.
  c10::cuda::CUDAStream copying(c10::DeviceIndex device);
  // Returns true if `bytes` fit beside the training, with a margin. Logs once if they do not.
  bool room(c10::DeviceIndex device, std::uint64_t bytes);
  void had_room(c10::DeviceIndex device, std::uint64_t bytes);
  // Returns true while every save comes from the same current stream. After the first other stream: false for
  // ever.
  bool one_stream(const c10::cuda::CUDAStream& training);
  std::span<std::byte> bounce() noexcept;

 private:
  struct PerDevice {
    std::optional<c10::cuda::CUDAStream> copying;
    std::optional<c10::cuda::CUDAStream> training;
    std::uint64_t had = 0;  // bytes: the largest spare memory that this device has given
    bool several_streams = false;
  };
  std::mutex mutex_;
  std::map<c10::DeviceIndex, PerDevice> devices_;
  bool said_no_room_ = false;
  bool bounce_was_tried_ = false;
  std::span<std::byte> bounce_;
};

class CudaDevice final : public CopyDevice {
 public:
  CudaDevice(std::shared_ptr<CudaStaging> staging, c10::DeviceIndex index, std::vector<at::Tensor> tensors);
  ~CudaDevice() override;

  bool reserve(std::uint64_t bytes, bool live) override;
  void set_aside(std::span<const SparePlace> places) override;
  void follow_training() override;
  void fetch_spare(std::uint64_t from, std::span<std::byte> to) override;
  void fetch_live(std::size_t index, std::uint64_t from, std::span<std::byte> to) override;
  void mark(std::size_t which) override;
  bool reached(std::size_t which) override;
  void hold_training(std::size_t which) override;
  void copy_now(std::span<const DeviceTensor> tensors) override;
  bool equals(std::size_t index, std::span<const std::byte> bytes) override;
  std::span<std::byte> bounce() override { return staging_->bounce(); }
  void drain() noexcept override;

 private:
  at::Tensor spare_view(std::byte* at, const at::Tensor& like) const;
  void fetch(const std::byte* from, std::span<std::byte> to);

  std::shared_ptr<CudaStaging> staging_;
  c10::DeviceIndex index_;
  std::vector<at::Tensor> tensors_;
  c10::cuda::CUDAStream training_;  // the current stream when the save began
  c10::cuda::CUDAStream copying_;
  at::Tensor spare_;
  at::Tensor scratch_;                 // on the copying stream: holds one packed tensor at a time
  std::optional<std::size_t> packed_;  // index of the tensor in scratch_
  cudaEvent_t ready_ = nullptr;
  std::array<cudaEvent_t, kMarks> marks_{};
};

}}}  // namespace holdfast::v0_2::internal

#endif
