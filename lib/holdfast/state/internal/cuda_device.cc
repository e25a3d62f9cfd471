#ifdef HOLDFAST_WITH_CUDA

#include "holdfast/state/internal/cuda_device.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/state/internal/cuda_tensors.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// LibTorch only marks a tensor as conjugated or negated; its bytes are still those of the original.
bool packed(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

// Types that _foreach_copy_ copies with one kernel for many tensors.
bool copies_in_groups(c10::ScalarType type) {
  return type == at::kFloat || type == at::kHalf || type == at::kBFloat16 || type == at::kDouble ||
         type == at::kLong;
}

// c10::Error has a backtrace of many lines; messages of Holdfast have one line.
template <class Work>
auto in_one_line(c10::DeviceIndex device, const Work& work) {
  try {
    return work();
  } catch (const c10::Error& error) {
    throw Error("cuda:" + std::to_string(device) + ": " + error.what_without_backtrace());
  }
}

// A capture in global mode on another thread forbids some calls on this thread too, such as polling an event.
// In relaxed mode they are allowed, and the capture stays valid.
struct OnDevice {
  explicit OnDevice(c10::DeviceIndex device) : guard(device), mode(cudaStreamCaptureModeRelaxed) {}
  c10::cuda::CUDAGuard guard;
  c10::cuda::CUDAStreamCaptureModeGuard mode;
};

}  // namespace

void check_cuda(cudaError_t result, c10::DeviceIndex device, const char* what) {
  if (result == cudaSuccess) return;
  // Clears the error, which the next CUDA call of the program would report otherwise.
  static_cast<void>(cudaGetLastError());
  throw Error("cuda:" + std::to_string(device) + ": " + what + ": " + cudaGetErrorString(result));
}

cudaError_t copy_in_pieces(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                           cudaStream_t stream) {
  auto* const target = static_cast<std::byte*>(to);
  const auto* const source = static_cast<const std::byte*>(from);
  const bool to_host = kind == cudaMemcpyDeviceToHost;
  const std::byte* const host = to_host ? target : source;
  for (std::size_t at = 0; at < bytes;) {
    const std::size_t piece = DeviceCopy::in_one_piece(host + at, bytes - at);
    cudaError_t result = cudaMemcpyAsync(target + at, source + at, piece, kind, stream);
    // An image that several ranks write has only the pages of this rank's share locked. CUDA refuses a
    // copy whose host memory is locked in part, so such a piece goes through ordinary memory.
    if (result == cudaErrorInvalidValue) {
      static_cast<void>(cudaGetLastError());
      std::vector<std::byte> between(piece);
      if (!to_host) std::memcpy(between.data(), source + at, piece);
      result = to_host ? cudaMemcpyAsync(between.data(), source + at, piece, kind, stream)
                       : cudaMemcpyAsync(target + at, between.data(), piece, kind, stream);
      // `between` ends with this piece, so the copy must have ended before.
      if (result == cudaSuccess) result = cudaStreamSynchronize(stream);
      if (to_host && result == cudaSuccess) std::memcpy(target + at, between.data(), piece);
    }
    if (result != cudaSuccess) return result;
    at += piece;
  }
  return cudaSuccess;
}

// The stream that is current now is the one on which this step's update ran.
CudaDevice::CudaDevice(std::shared_ptr<CudaStaging> staging, c10::DeviceIndex index,
                       std::vector<at::Tensor> tensors)
    : staging_(std::move(staging)),
      index_(index),
      tensors_(std::move(tensors)),
      training_(c10::cuda::getCurrentCUDAStream(index)),
      copying_(staging_->copying(index)) {
  const OnDevice here(index_);
  // Without timing: CUDA's manual calls such events the fastest to wait for and to query.
  check_cuda(cudaEventCreateWithFlags(&ready_, cudaEventDisableTiming), index_, "cannot make an event");
  for (cudaEvent_t& mark : marks_) {
    // Not fatal here: mark() throws Error for a mark without an event.
    if (cudaEventCreateWithFlags(&mark, cudaEventDisableTiming) == cudaSuccess) continue;
    mark = nullptr;
    static_cast<void>(cudaGetLastError());
  }
}

// The owner drains the stream first, so no copy still needs these events.
CudaDevice::~CudaDevice() {
  for (const cudaEvent_t event : {ready_, marks_[0], marks_[1]}) {
    if (event != nullptr) static_cast<void>(cudaEventDestroy(event));
  }
}

// The training stream writes the spare memory, and the copying stream the scratch memory. Each is allocated
// on the stream that writes it, so the caching allocator orders its reuse.
bool CudaDevice::reserve(std::uint64_t bytes, bool live) {
  const c10::cuda::CUDAGuard here(index_);
  std::uint64_t scratch = 0;
  for (const at::Tensor& tensor : tensors_) {
    if (live && !packed(tensor)) scratch = std::max<std::uint64_t>(scratch, tensor.nbytes());
  }
  // Asked before allocating, because a failed allocation stalls the training.
  if (!staging_->room(index_, bytes + scratch)) return false;
  const auto options = at::TensorOptions(at::kByte).device(at::kCUDA, index_);
  try {
    spare_ = at::empty({static_cast<std::int64_t>(bytes)}, options);
    if (scratch > 0) {
      const c10::cuda::CUDAStreamGuard copying(copying_);
      scratch_ = at::empty({static_cast<std::int64_t>(scratch)}, options);
    }
  } catch (const c10::OutOfMemoryError&) {
    // Not an error: the save then takes the next way of device_copy.h. What was allocated goes back at once,
    // because the training may need it.
    spare_.reset();
    scratch_.reset();
    return false;
  }
  staging_->had_room(index_, bytes + scratch);
  return true;
}

at::Tensor CudaDevice::spare_view(std::byte* at, const at::Tensor& like) const {
  auto view = at::for_blob(at, like.sizes());
  // Also the strides of dimensions of size 1: _foreach_copy_ needs equal strides for its one kernel.
  if (packed(like)) view.strides(like.strides());
  return view.options(at::TensorOptions(like.scalar_type()).device(at::kCUDA, index_))
      .target_device(at::Device(at::kCUDA, index_))
      .make_tensor();
}

void CudaDevice::set_aside(std::span<const SparePlace> places) {
  if (places.empty()) return;
  const c10::cuda::CUDAGuard here(index_);
  const at::NoGradGuard no_grad;
  struct Group {
    std::vector<at::Tensor> to;
    std::vector<at::Tensor> from;
  };
  std::map<c10::ScalarType, Group> groups;
  // The operators below use the current stream. It is training_ here, because begin() runs on the training
  // thread before the program can choose another stream.
  auto* const base = static_cast<std::byte*>(spare_.mutable_data_ptr());
  in_one_line(index_, [&] {
    for (const auto& [index, offset] : places) {
      const at::Tensor& tensor = tensors_[index];
      // A strided or conjugated tensor has to be written out by a kernel.
      if (!packed(tensor)) {
        spare_view(base + offset, tensor).copy_(tensor);
      } else if (copies_in_groups(tensor.scalar_type())) {
        Group& group = groups[tensor.scalar_type()];
        group.to.push_back(spare_view(base + offset, tensor));
        group.from.push_back(tensor);
      } else {
        check_cuda(cudaMemcpyAsync(base + offset, tensor.const_data_ptr(), tensor.nbytes(),
                                   cudaMemcpyDeviceToDevice, training_),
                   index_, "cannot set the state aside");
      }
    }
    // One kernel per type instead of one copy per tensor: a model has hundreds of small tensors, and launches
    // count.
    for (auto& [type, group] : groups) at::_foreach_copy_(group.to, group.from, /*non_blocking=*/true);
  });
}

void CudaDevice::follow_training() {
  const OnDevice here(index_);
  // The copying stream waits on the device; the host waits for nothing.
  check_cuda(cudaEventRecord(ready_, training_), index_, "cannot record an event");
  check_cuda(cudaStreamWaitEvent(copying_, ready_, 0), index_, "cannot order two streams");
}

void CudaDevice::fetch(const std::byte* from, std::span<std::byte> to) {
  const OnDevice here(index_);
  check_cuda(copy_in_pieces(to.data(), from, to.size(), cudaMemcpyDeviceToHost, copying_), index_,
             "cannot copy the state to host memory");
}

void CudaDevice::fetch_spare(std::uint64_t from, std::span<std::byte> to) {
  fetch(static_cast<const std::byte*>(spare_.const_data_ptr()) + from, to);
}

void CudaDevice::fetch_live(std::size_t index, std::uint64_t from, std::span<std::byte> to) {
  const at::Tensor& tensor = tensors_[index];
  // Contiguous memory is copied by the copy engine, which takes nothing from the training's kernels.
  if (packed(tensor)) return fetch(static_cast<const std::byte*>(tensor.const_data_ptr()) + from, to);
  auto* const scratch = static_cast<std::byte*>(scratch_.mutable_data_ptr());
  if (packed_ != index) {
    // On the copying stream: this runs after the fetches of the tensor that was packed here before.
    const c10::cuda::CUDAStreamGuard copying(copying_);
    const at::NoGradGuard no_grad;
    in_one_line(index_, [&] { spare_view(scratch, tensor).copy_(tensor); });
    packed_ = index;
  }
  fetch(scratch + from, to);
}

void CudaDevice::mark(std::size_t which) {
  const OnDevice here(index_);
  check_cuda(
      marks_[which] != nullptr ? cudaEventRecord(marks_[which], copying_) : cudaErrorInvalidResourceHandle,
      index_, "cannot record an event");
}

bool CudaDevice::reached(std::size_t which) {
  const OnDevice here(index_);
  // Error "not ready" is an answer here, but CUDA remembers it as the last error.
  const cudaError_t result = cudaEventQuery(marks_[which]);
  if (result == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  check_cuda(result, index_, "copying the state to host memory failed");
  return true;
}

// The current stream may differ from the one at begin(). The update may run on either, so both wait.
void CudaDevice::hold_training(std::size_t which) {
  const OnDevice here(index_);
  const c10::cuda::CUDAStream now = c10::cuda::getCurrentCUDAStream(index_);
  check_cuda(cudaStreamWaitEvent(now, marks_[which], 0), index_, "cannot order two streams");
  if (now != training_) {
    check_cuda(cudaStreamWaitEvent(training_, marks_[which], 0), index_, "cannot order two streams");
  }
}

void CudaDevice::copy_now(std::span<const DeviceTensor> tensors) {
  const c10::cuda::CUDAGuard here(index_);
  // The program may have changed the state on any stream.
  check_cuda(cudaDeviceSynchronize(), index_, "the device failed before the state could be copied");
  in_one_line(index_, [&] {
    CudaTransfers transfers;
    for (std::size_t i = 0; i < tensors.size(); ++i) transfers.fetch(tensors_[i], tensors[i].to);
    transfers.wait();
  });
}

bool CudaDevice::equals(std::size_t index, std::span<const std::byte> bytes) {
  const at::NoGradGuard no_grad;
  return in_one_line(index_, [&] {
    // To the host: the comparison needs no spare memory on the device.
    const at::Tensor now = tensors_[index].contiguous().cpu();
    return std::memcmp(now.const_data_ptr(), bytes.data(), bytes.size()) == 0;
  });
}

// Never throws: destructors call it before the image's memory goes. A failed copy shows in reached(), for the
// thread that waits for the image.
void CudaDevice::drain() noexcept {
  try {
    const OnDevice here(index_);
    const cudaError_t result = cudaStreamSynchronize(copying_);
    if (result != cudaSuccess) log_debug("cuda:{}: {}", index_, cudaGetErrorString(result));
  } catch (const std::exception& error) {
    log_debug("cuda:{}: {}", index_, what_of(error));
  }
}

}}}  // namespace holdfast::v0_2::internal

#endif
