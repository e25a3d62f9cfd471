#include "holdfast/state/internal/cuda_tensors.h"

#include <utility>

#ifdef HOLDFAST_WITH_CUDA
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/state/internal/cuda_device.h"
#endif

namespace holdfast { inline namespace v0_2 { namespace internal {

#ifndef HOLDFAST_WITH_CUDA

bool in_cuda(const at::Tensor&) { return false; }
std::shared_ptr<CudaStaging> make_cuda_staging() { return nullptr; }
void CudaTensors::add(std::string, const at::Tensor&, std::span<std::byte>, bool) {}
std::unique_ptr<LateCopy> CudaTensors::begin(const std::shared_ptr<CudaStaging>&, NextUpdate) {
  return nullptr;
}
CudaTransfers::~CudaTransfers() = default;
void CudaTransfers::fetch(const at::Tensor&, std::span<std::byte>) {}
void CudaTransfers::send(std::span<const std::byte>, const at::Tensor&) {}
void CudaTransfers::wait() {}
PrepareImage cuda_image_preparation() { return {}; }

#else

bool in_cuda(const at::Tensor& tensor) { return tensor.is_cuda(); }

namespace {

// Bytes of device memory for packed copies. Above this, wait() frees them before more are made.
constexpr std::size_t kMadeAtMost = 256u << 20;

bool plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

void refuse_capture(const c10::cuda::CUDAStream& stream) {
  // A copy inside a capture would become a part of the graph and run at every replay.
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream, &status), stream.device_index(),
             "cannot look at the current stream");
  if (status == cudaStreamCaptureStatusNone) return;
  throw Error(
      "a CUDA graph is being captured on the current stream: call after_step, save and finish between "
      "replays, never inside a capture");
}

// A copy into pageable memory returns only when it has ended. So the ways of device_copy.h depend on this
// answer.
bool is_locked(const std::byte* memory) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  return attributes.type == cudaMemoryTypeHost;
}

// Locks the pages of one image; the destructor unlocks them.
class LockedPages {
 public:
  explicit LockedPages(std::span<std::byte> image) : image_(image) {}
  ~LockedPages() {
    // Registered in these pieces, so they are unregistered in the same ones.
    for (std::size_t at = 0; at < locked_; at += piece(at)) {
      static_cast<void>(cudaHostUnregister(image_.data() + at));
    }
  }
  LockedPages(const LockedPages&) = delete;
  LockedPages& operator=(const LockedPages&) = delete;

  // In pieces: each call holds a driver lock that the training's kernel launches need.
  cudaError_t lock() {
    while (locked_ < image_.size()) {
      // Portable, because every device of the process copies into it.
      const cudaError_t result =
          cudaHostRegister(image_.data() + locked_, piece(locked_), cudaHostRegisterPortable);
      if (result != cudaSuccess) return result;
      locked_ += piece(locked_);
    }
    return cudaSuccess;
  }

 private:
  std::size_t piece(std::size_t at) const {
    return DeviceCopy::in_one_piece(image_.data() + at, image_.size() - at);
  }

  std::span<std::byte> image_;
  std::size_t locked_ = 0;
};

std::shared_ptr<void> lock_pages(std::span<std::byte> image, bool& said) {
  try {
    const c10::cuda::CUDAStreamCaptureModeGuard mode(cudaStreamCaptureModeRelaxed);
    auto pages = std::make_shared<LockedPages>(image);
    const cudaError_t result = pages->lock();
    if (result == cudaSuccess) return pages;
    static_cast<void>(cudaGetLastError());
    if (!std::exchange(said, true)) {
      log_warning(
          "the image of the state ({}) could not be page-locked ({}): saves are copied through a small "
          "page-locked buffer, which is slower; raise the limit of locked memory (ulimit -l)",
          format_bytes(image.size()), cudaGetErrorString(result));
    }
  } catch (const std::exception& error) {
    log_debug("the image was not page-locked: {}", what_of(error));
  }
  return nullptr;
}

}  // namespace

void CudaTensors::add(std::string name, const at::Tensor& tensor, std::span<std::byte> to, bool early) {
  // detach() shares the memory: the graph of the training must not be kept alive by a save.
  items_.push_back({std::move(name), tensor.detach(), to, early});
}

// Asked at both ends, because each question is a call of the driver, and a state has hundreds of tensors. A
// rank that stages a share has locked no more than that share.
bool CudaTensors::into_locked() const {
  const std::byte* first = nullptr;
  const std::byte* last = nullptr;
  for (const Item& item : items_) {
    if (item.to.empty()) continue;
    if (first == nullptr || item.to.data() < first) first = item.to.data();
    last = std::max<const std::byte*>(last, &item.to.back());
  }
  return first != nullptr && is_locked(first) && is_locked(last);
}

std::unique_ptr<LateCopy> CudaTensors::begin(const std::shared_ptr<CudaStaging>& staging, NextUpdate update) {
  const bool locked = into_locked();
  std::map<c10::DeviceIndex, std::vector<Item> > by_device;
  for (Item& item : items_) by_device[item.tensor.device().index()].push_back(std::move(item));
  items_.clear();
  std::vector<DeviceShare> shares;
  try {
    for (auto& [device, items] : by_device) {
      const c10::cuda::CUDAStream training = c10::cuda::getCurrentCUDAStream(device);
      refuse_capture(training);
      DeviceShare& share = shares.emplace_back();
      share.at_once = !staging->one_stream(training);
      std::vector<at::Tensor> tensors;
      // Names and tensors are split, because the device's part does not know Torch's types.
      for (Item& item : items) {
        const auto element = static_cast<std::uint64_t>(item.tensor.element_size());
        share.tensors.push_back({std::move(item.name), element, item.early, item.to});
        tensors.push_back(std::move(item.tensor));
      }
      share.device = std::make_unique<CudaDevice>(staging, device, std::move(tensors));
    }
    return DeviceCopy::begin(std::move(shares), locked, update);
  } catch (const c10::Error& error) {
    throw Error(std::string("staging from CUDA devices: ") + error.what_without_backtrace());
  }
}

CudaTransfers::~CudaTransfers() {
  // Copies on their way use memory that is freed after this.
  try {
    wait();
  } catch (const std::exception& error) {
    log_debug("{}", what_of(error));
  }
}

void CudaTransfers::hold(at::Tensor tensor, bool made_here) {
  if (made_here) made_ += tensor.nbytes();
  held_.push_back(std::move(tensor));
  // Bounds the device memory that packed copies take at a time.
  if (made_ > kMadeAtMost) wait();
}

void CudaTransfers::fetch(const at::Tensor& from, std::span<std::byte> to) {
  if (to.empty()) return;
  const at::NoGradGuard no_grad;
  const c10::DeviceIndex device = from.device().index();
  const c10::cuda::CUDAGuard here(device);
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(device);
  refuse_capture(stream);
  at::Tensor packed = from.detach();
  if (!plain(from)) {
    try {
      packed = from.detach().contiguous().resolve_conj().resolve_neg();
    } catch (const c10::OutOfMemoryError&) {  // the host has room for the packed copy
      packed = from.detach().cpu().contiguous().resolve_conj().resolve_neg();
      std::memcpy(to.data(), packed.const_data_ptr(), to.size());
      return;
    }
  }
  check_cuda(copy_in_pieces(to.data(), packed.const_data_ptr(), to.size(), cudaMemcpyDeviceToHost, stream),
             device, "cannot copy the state to host memory");
  hold(std::move(packed), !plain(from));
}

void CudaTransfers::send(std::span<const std::byte> from, const at::Tensor& to) {
  if (from.empty()) return;
  const at::NoGradGuard no_grad;
  const c10::DeviceIndex device = to.device().index();
  const c10::cuda::CUDAGuard here(device);
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(device);
  refuse_capture(stream);
  const bool strided = !plain(to);
  at::Tensor packed =
      strided ? at::empty(to.sizes(), at::TensorOptions(to.scalar_type()).device(to.device())) : to.detach();
  check_cuda(
      copy_in_pieces(packed.mutable_data_ptr(), from.data(), from.size(), cudaMemcpyHostToDevice, stream),
      device, "cannot copy the state to the device");
  // On the stream of the copy above, and behind it, so neither needs a wait.
  if (strided) to.copy_(packed);
  hold(std::move(packed), strided);
}

void CudaTransfers::wait() {
  std::set<c10::DeviceIndex> devices;
  for (const at::Tensor& tensor : held_) devices.insert(tensor.device().index());
  // One wait for each device and not for each tensor.
  for (const c10::DeviceIndex device : devices) {
    const c10::cuda::CUDAGuard here(device);
    check_cuda(cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream(device)), device,
               "copying the state failed");
  }
  held_.clear();
  made_ = 0;
}

PrepareImage cuda_image_preparation() {
  return
      [said = std::make_shared<bool>(false)](std::span<std::byte> image) { return lock_pages(image, *said); };
}

#endif

}}}  // namespace holdfast::v0_2::internal
