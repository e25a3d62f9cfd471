#include "captured.h"

#include "holdfast/base/error.h"

#ifdef HOLDFAST_WITH_CUDA
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <optional>
#endif

namespace holdfast::bench {

#ifdef HOLDFAST_WITH_CUDA

struct SideStream::State {
  std::optional<c10::cuda::CUDAStreamGuard> guard;
};

SideStream::SideStream(c10::Device device) : state_(std::make_unique<State>()) {
  if (device.is_cuda()) state_->guard.emplace(c10::cuda::getStreamFromPool(false, device.index()));
}

std::string why_no_graph(c10::Device device) {
  return device.is_cuda() ? "" : "a CUDA graph needs a CUDA device";
}

struct CapturedStep::State {
  at::cuda::CUDAGraph graph;
};

// Relaxed about other threads: their CUDA calls are none of this capture's business.
CapturedStep::CapturedStep(const std::function<void()>& step) : state_(std::make_unique<State>()) {
  c10::cuda::device_synchronize();
  c10::cuda::CUDACachingAllocator::emptyCache();
  try {
    state_->graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    try {
      step();
    } catch (...) {
      try {
        state_->graph.capture_end();  // or the stream goes on capturing
      } catch (const std::exception&) {
        static_cast<void>(cudaGetLastError());
      }
      throw;
    }
    state_->graph.capture_end();
  } catch (const c10::Error& error) {
    static_cast<void>(cudaGetLastError());  // or the next call would report it
    throw Error(error.what_without_backtrace());
  }
}

void CapturedStep::replay() { state_->graph.replay(); }

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

void release_memory() { c10::cuda::CUDACachingAllocator::emptyCache(); }

#else

struct SideStream::State {};
SideStream::SideStream(c10::Device /*device*/) {}

std::string why_no_graph(c10::Device /*device*/) { return "no CUDA in this build (HOLDFAST_CUDA)"; }

struct CapturedStep::State {};
CapturedStep::CapturedStep(const std::function<void()>& /*step*/) {
  throw Error("no CUDA in this build (HOLDFAST_CUDA)");
}
void CapturedStep::replay() {}

void wait_for(c10::Device /*device*/) {}
double memory_of(c10::Device /*device*/) { return 0; }
void release_memory() {}

#endif

SideStream::~SideStream() = default;
CapturedStep::~CapturedStep() = default;

}  // namespace holdfast::bench
