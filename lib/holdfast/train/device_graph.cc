#include "holdfast/train/device_graph.h"

#include "holdfast/base/error.h"

#ifdef HOLDFAST_WITH_CUDA
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <utility>

#include "holdfast/state/torch_compat.h"
#include "holdfast/train/internal/host_recording.h"
#endif

namespace holdfast { inline namespace v0_2 {

#ifdef HOLDFAST_WITH_CUDA
namespace {

template <class Work>
void quietly(const Work& work) {
  try {
    work();
  } catch (const std::exception&) {
    // Clears the error, which the next CUDA call would report otherwise.
    static_cast<void>(cudaGetLastError());
  }
}

void require(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw Error(std::string(what) + ": " + cudaGetErrorString(result));
}

// Makes the stream `second` wait for everything in `first`.
class Order {
 public:
  // Without timing: CUDA's manual calls such events the fastest to wait for.
  Order() { require(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cannot make an event"); }
  ~Order() { static_cast<void>(cudaEventDestroy(event_)); }
  Order(const Order&) = delete;
  Order& operator=(const Order&) = delete;
  void between(cudaStream_t first, cudaStream_t second) {
    require(cudaEventRecord(event_, first), "cannot record an event");
    require(cudaStreamWaitEvent(second, event_, 0), "cannot order two streams");
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// LibTorch's class stops half-way if a capture has become invalid. Then the allocator still routes memory to
// it, and generators refuse to draw. abandon() does the rest.
class TorchGraph final : public at::cuda::CUDAGraph, public DeviceGraph {
 public:
  void record(const std::function<void()>& work, const std::vector<at::Generator>& generators,
              TorchGraph* with) {
    for (const at::Generator& generator : generators) compat::register_generator(*this, generator);
    try {
      decltype(pool()) memory{};
      // A second graph uses the memory of the first: they never run at the same time.
      if (with != nullptr) memory = with->pool();
      // Thread-local: CUDA calls of other threads (a loader, a writer) must not invalidate the capture.
      capture_begin(memory, cudaStreamCaptureModeThreadLocal);
      work();
      capture_end();
    } catch (...) {
      abandon();
      throw;
    }
  }
  void replay() override { at::cuda::CUDAGraph::replay(); }

 private:
  void abandon() {
    // If the capture is still valid, this call releases everything.
    if (!capture_ended_) quietly([&] { capture_end(); });
    static_cast<void>(cudaGetLastError());
    // After a capture that ended the destructor releases the memory.
    if (capture_ended_ || capture_dev_ < 0) return;
    for (auto& [state, increment] : captured_generator_states_) release(*state);
    quietly([&] { c10::cuda::CUDACachingAllocator::endAllocateToPool(capture_dev_, mempool_id_); });
    quietly([&] { c10::cuda::CUDACachingAllocator::releasePool(capture_dev_, mempool_id_); });
    internal::end_host_recording(internal::host_allocator_of(at::kCUDA), mempool_id_);
  }
  // Releases without this member keep a capture's state elsewhere and need nothing.
  template <class State>
  static void release(State& state) {
    if constexpr (requires { state.capturing_ = false; }) state.capturing_ = false;
  }
};

class CudaGraphs final : public GraphDevice {
 public:
  // A capture is not possible on the default stream.
  CudaGraphs(c10::Device device, std::vector<at::Generator> generators)
      : side_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())),
        generators_(std::move(generators)) {}

  void aside(const std::function<void()>& work) override {
    const c10::cuda::CUDAStream caller = c10::cuda::getCurrentCUDAStream(side_.device_index());
    const c10::cuda::CUDAStreamGuard guard(side_);
    // Made late: an event belongs to the device that is current.
    if (!order_) order_ = std::make_unique<Order>();
    order_->between(caller, side_);
    try {
      work();
    } catch (...) {
      // Work that was begun still has to be waited for.
      quietly([&] { order_->between(side_, caller); });
      throw;
    }
    order_->between(side_, caller);
  }

  std::unique_ptr<DeviceGraph> capture(const std::function<void()>& work, const DeviceGraph* with) override {
    auto graph = std::make_unique<TorchGraph>();
    try {
      aside([&] {
        // As torch.cuda.graph does before it begins a capture.
        c10::cuda::device_synchronize();
        // Cached blocks of eager work are useless beside the graph's own memory.
        c10::cuda::CUDACachingAllocator::emptyCache();
        graph->record(work, generators_, const_cast<TorchGraph*>(dynamic_cast<const TorchGraph*>(with)));
      });
    } catch (const c10::Error& error) {
      static_cast<void>(cudaGetLastError());  // clears the error, which the next CUDA call would report
                                              // otherwise
      const std::string text = error.what_without_backtrace();
      throw Error(text.substr(0, text.find('\n')));
    }
    return graph;
  }

 private:
  c10::cuda::CUDAStream side_;
  std::vector<at::Generator> generators_;
  std::unique_ptr<Order> order_;
};

}  // namespace

std::string why_no_graph(c10::Device device) {
  return device.is_cuda() ? "" : "a CUDA graph needs a CUDA device";
}

std::unique_ptr<GraphDevice> make_cuda_graphs(c10::Device device, std::vector<at::Generator> generators) {
  if (const std::string why = why_no_graph(device); !why.empty()) throw UsageError(why);
  return std::make_unique<CudaGraphs>(device, std::move(generators));
}

#else

std::string why_no_graph(c10::Device /*device*/) { return "there is no CUDA in this build (HOLDFAST_CUDA)"; }

std::unique_ptr<GraphDevice> make_cuda_graphs(c10::Device device, std::vector<at::Generator> /*generators*/) {
  throw UsageError(why_no_graph(device));
}

#endif

}}  // namespace holdfast::v0_2
