#include "holdfast/distributed/internal/nccl_backend.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "holdfast/base/text.h"

#ifdef HOLDFAST_WITH_NCCL
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "holdfast/base/system/machine.h"
#else
#include "holdfast/base/error.h"
#endif

namespace holdfast { inline namespace v0_2 {
namespace {

std::atomic<MakeNccl> made_by{nullptr};
std::atomic<Duration> patience_of_watch{std::chrono::seconds(30)};

#ifdef HOLDFAST_WITH_NCCL
// c10d's watchdog keeps a list of the collectives whose end it has not seen.
class ListedNccl final : public c10d::ProcessGroupNCCL, public PendingCollectives {
 public:
  using c10d::ProcessGroupNCCL::ProcessGroupNCCL;
  bool pending() override {
    const std::lock_guard lock(workMetaListMutex_);
    return !workMetaList_.empty();
  }
};

c10::intrusive_ptr<c10d::Backend> real_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int world_size, Duration timeout) {
  const auto settings = c10d::ProcessGroupNCCL::Options::create();
  settings->timeout = std::chrono::ceil<std::chrono::milliseconds>(timeout);
  return c10::make_intrusive<ListedNccl>(store, rank, world_size, settings);
}
#else
c10::intrusive_ptr<c10d::Backend> real_nccl(const c10::intrusive_ptr<c10d::Store>&, int, int, Duration) {
  throw UsageError(
      "several ranks on GPUs need a build with CUDA and NCCL: cmake -DHOLDFAST_CUDA=ON, with nccl.h beside "
      "LibTorch (cmake/bootstrap --cuda) or in the CUDA toolkit");
}
#endif

}  // namespace

void make_nccl_by(MakeNccl make, Duration patience) noexcept {
  made_by = make;
  patience_of_watch = patience;
}

Duration nccl_patience() noexcept { return patience_of_watch; }

// c10d's watchdog for NCCL would end the process on an error, without a word about the lost rank.
void prepare_nccl() { ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", /*overwrite=*/0); }

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int world_size, Duration timeout) {
  if (const MakeNccl make = made_by) return make(rank, world_size);
  return real_nccl(store, rank, world_size, timeout);
}

void finish_nccl(c10d::Backend& nccl, [[maybe_unused]] c10::Device device) {
#ifdef HOLDFAST_WITH_NCCL
  if (made_by.load() == nullptr) {
    // Kernels that still run would otherwise use communicators that are gone.
    const c10::cuda::OptionalCUDAGuard guard(device.has_index() ? std::optional(device) : std::nullopt);
    c10::cuda::device_synchronize();
  }
#endif
  nccl.shutdown();
}

// By its UUID: CUDA_VISIBLE_DEVICES numbers the GPUs anew in each process, so equal indices may be different
// GPUs.
std::string gpu_of([[maybe_unused]] c10::Device device) {
#ifdef HOLDFAST_WITH_NCCL
  if (made_by.load() == nullptr) {
    constexpr char kDigits[] = "0123456789abcdef";
    const auto index = device.has_index() ? device.index() : c10::cuda::current_device();
    // With the host's name: NCCL lets containers with different host names share a GPU.
    std::string name = host_name() + " GPU-";
    int count = 0;
    for (const char byte : at::cuda::getDeviceProperties(index)->uuid.bytes) {
      if (count == 4 || count == 6 || count == 8 || count == 10) name += '-';
      const auto value = static_cast<unsigned char>(byte);
      name += {kDigits[value >> 4], kDigits[value & 15]};
      ++count;
    }
    return name;
  }
#endif
  return {};
}

// LibTorch's own constant is that of its build; LD_PRELOAD may have brought another library.
int nccl_version() {
  using Ask = int (*)(int*);
  const auto ask = reinterpret_cast<Ask>(::dlsym(RTLD_DEFAULT, "ncclGetVersion"));
  int version = 0;
  return ask != nullptr && ask(&version) == 0 ? version : 0;
}

bool collectives_pending(c10d::Backend& nccl) {
  auto* const known = dynamic_cast<PendingCollectives*>(&nccl);
  return known == nullptr || known->pending();
}

std::string fault_of(c10d::Backend& nccl, Duration timeout) {
  // c10d's watchdog thread has found the error; this call only reads what it noted.
  switch (nccl.getError()) {
    case c10d::ErrorType::SUCCESS:
      return {};
    case c10d::ErrorType::TIMEOUT:
      return "a collective of NCCL did not end within " + format_duration(timeout);
    case c10d::ErrorType::COMM_ERROR:
      return "a collective of NCCL failed (NCCL_DEBUG=WARN says more)";
    case c10d::ErrorType::REMOTE_ERROR:
      return "a collective of NCCL failed on another rank";
  }
  return "NCCL has an error of an unknown kind";
}

}}  // namespace holdfast::v0_2
