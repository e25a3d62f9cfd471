#include "holdfast/kernels/kernel.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <thread>

#ifdef HOLDFAST_WITH_CUDA
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <map>
#include <mutex>

#include "holdfast/io/file_system.h"
#include "holdfast/kernels/compiler.h"
#include "holdfast/kernels/internal/nvrtc.h"
#include "holdfast/kernels/kernel_cache.h"
#endif

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 { namespace kernels {
namespace {

// Initialisers of static objects in several sources fill the list, in no defined order. So it is made at its
// first use.
std::vector<KernelName>& known() {
  static std::vector<KernelName> names;
  return names;
}

// "Half" of "Apply<Half, true>"; a type without arguments stays as it is.
[[maybe_unused]] std::string first_argument(const std::string& type) {
  const std::size_t begin = type.find('<');
  if (begin == std::string::npos) return type;
  const std::size_t end = type.find_first_of(",>", begin);
  return type.substr(begin + 1, end - begin - 1);
}

// Extracts the type from a function's signature. g++ writes "constexpr const char* f() [with Type =
// Apply<float>]", clang "[Type = …]".
std::string type_in(const std::string& signature) {
  const std::string before = "Type = ";
  const std::size_t begin = signature.find(before) + before.size();
  return signature.substr(begin, signature.rfind(']') - begin);
}

}  // namespace

const std::vector<KernelName>& known_kernels() { return known(); }

namespace internal {

// Own threads: torch's pool is only available with the OpenMP runtime that torch was built with.
void run_blocks(Grid grid, const std::function<void(std::atomic<std::int64_t>&)>& work) {
  const auto blocks = std::int64_t{grid.x} * grid.y;
  std::atomic<std::int64_t> next = 0;
  std::vector<std::jthread> helpers;
  // As many threads as LibTorch uses for its own operators.
  for (std::int64_t i = 1; i < std::min<std::int64_t>(blocks, at::get_num_threads()); ++i) {
    helpers.emplace_back([&] { work(next); });
  }
  work(next);
}

bool make_known(const Source& source, const char* signature) {
  known().push_back({&source, type_in(signature)});
  return true;
}

#ifndef HOLDFAST_WITH_CUDA
void launch_on_gpu(const Source&, const char* signature, const void*, int, Grid, c10::Device device) {
  throw UsageError("kernel " + type_in(signature) + " cannot run on " + device.str() +
                   ": built without CUDA (HOLDFAST_CUDA)");
}
void prepare_on_gpu(const Source& source, const char* /*element*/, c10::Device device) {
  throw UsageError(std::string("the kernels in ") + source.path + " cannot run on " + device.str() +
                   ": built without CUDA (HOLDFAST_CUDA)");
}
#else
namespace {

using Function = struct CudaFunction*;

void check(int result, const char* what, const std::string& kernel) {
  if (result == 0) return;
  // Found at run time, because this library does not link the driver: machines without a GPU have none.
  using Describe = int (*)(int, const char**);
  const char* text = nullptr;
  reinterpret_cast<Describe>(driver_function("cuGetErrorString"))(result, &text);
  throw Error("kernel " + kernel + ": " + what + ": " +
              (text != nullptr ? text : "driver error " + std::to_string(result)));
}

int architecture_of(int device) {
  int major = 0;
  int minor = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  return 10 * major + minor;
}

// The compiled kernels of this process, from the cache or from NVRTC.
class Kernels {
 public:
  // One caller at a time: a second thread that needs the same kernel waits instead of compiling it again.
  Function function(const Source& source, const char* signature, int device) {
    const std::lock_guard lock(mutex_);
    // A reference, so that the next look-up finds the function that is loaded here.
    Function& function = functions_[{signature, device}];
    if (function == nullptr) function = load(source, type_in(signature), device);
    return function;
  }
  void prepare(const Source& source, const std::string& element, int device) {
    const std::lock_guard lock(mutex_);
    compile_for(source, element, device);
  }

 private:
  using Key = std::pair<std::string, int>;  // type and device

  Function load(const Source& source, const std::string& type, int device) {
    if (!compiled_.contains({type, device})) compile_for(source, first_argument(type), device);
    cache_.keep_late();  // kernels are prepared before resume(), and launched after it
    const Outcome& outcome = compiled_.at({type, device});
    // Compiling it again would take seconds and fail as well.
    if (outcome.error) std::rethrow_exception(outcome.error);
    using LoadData = int (*)(void**, const void*);
    using GetFunction = int (*)(Function*, void*, const char*);
    static const auto load_data = reinterpret_cast<LoadData>(driver_function("cuModuleLoadData"));
    static const auto get_function = reinterpret_cast<GetFunction>(driver_function("cuModuleGetFunction"));
    void* module = nullptr;  // never unloaded: lives as long as the device's context
    check(load_data(&module, outcome.compiled.image.data()), "its code cannot be loaded", type);
    Function function = nullptr;
    check(get_function(&function, module, outcome.compiled.symbols.front().c_str()), "not found in its code",
          type);
    return function;
  }

  void compile_for(const Source& source, const std::string& element, int device) {
    const int architecture = architecture_of(device);
    std::vector<std::string> types;
    // All kernels of this element type together, on all cores: a model needs most of them.
    for (const KernelName& kernel : known()) {
      const bool wanted = kernel.source == &source && first_argument(kernel.type) == element;
      if (wanted && !compiled_.contains({kernel.type, device})) types.push_back(kernel.type);
    }
    std::vector<Outcome> outcomes = compile_together(
        types, cache_,
        [&](const std::string& type) { return cache_key(source, type, architecture, compiler_version()); },
        [&](const std::string& type) { return compile(source, {type}, architecture); });
    for (std::size_t i = 0; i < types.size(); ++i) compiled_[{types[i], device}] = std::move(outcomes[i]);
  }

  std::mutex mutex_;
  KernelCache of_user_{FileSystem::real(), KernelCache::usual_folder()};
  KernelCache cache_{FileSystem::real(), KernelCache::folder_of_run(), of_user_};
  // By the address of the signature, which is quick. One text at two addresses costs no more than a second
  // look-up.
  std::map<std::pair<const char*, int>, Function> functions_;
  std::map<Key, Outcome> compiled_;
};

Kernels& the_kernels() {
  static Kernels kernels;
  return kernels;
}

}  // namespace

void launch_on_gpu(const Source& source, const char* signature, const void* kernel, int threads, Grid grid,
                   c10::Device device) {
  if (!device.is_cuda()) {
    throw UsageError("kernel " + type_in(signature) + " cannot run on " + device.str() +
                     ", only on CUDA and a CPU");
  }
  using Launch = int (*)(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                         cudaStream_t, void**, void**);
  static const auto launch = reinterpret_cast<Launch>(driver_function("cuLaunchKernel"));
  using Current = int (*)(void**);
  static const auto current = reinterpret_cast<Current>(driver_function("cuCtxGetCurrent"));
  const c10::cuda::CUDAGuard guard(device);
  const int index = c10::cuda::current_device();
  void* context = nullptr;
  current(&context);
  if (context == nullptr)
    cudaFree(nullptr);  // creates the context for an autograd thread that has not used
                        // the device
  const Function function = the_kernels().function(source, signature, index);
  void* arguments[] = {const_cast<void*>(kernel)};
  check(launch(function, static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y), 1,
               static_cast<unsigned>(threads), 1, 1, 0, c10::cuda::getCurrentCUDAStream().stream(), arguments,
               nullptr),
        "cannot be launched", type_in(signature));
}

void prepare_on_gpu(const Source& source, const char* element, c10::Device device) {
  if (!device.is_cuda()) {
    throw UsageError(std::string("the kernels in ") + source.path + " cannot run on " + device.str() +
                     ", only on CUDA and a CPU");
  }
  const int index = device.has_index() ? device.index() : c10::cuda::current_device();
  the_kernels().prepare(source, type_in(element), index);
}
#endif

}  // namespace internal
}}}  // namespace holdfast::v0_2::kernels
