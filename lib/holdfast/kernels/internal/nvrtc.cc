#include "holdfast/kernels/internal/nvrtc.h"

#include <c10/core/Device.h>
#include <dlfcn.h>

#include <filesystem>
#include <vector>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 { namespace kernels::internal {
namespace {

// Never closed: kernels may be launched until the process ends.
void* open(const std::string& path) { return dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL); }

std::filesystem::path folder_of_libtorch() {
  Dl_info found{};
  const auto known = reinterpret_cast<void*>(&c10::DeviceTypeName);
  // LibTorch's own folder: its libraries lie beside each other in every kind of installation.
  if (dladdr(known, &found) == 0 || found.dli_fname == nullptr) return {};
  std::error_code ignored;
  return std::filesystem::canonical(found.dli_fname, ignored).parent_path();
}

std::string& chosen_file() {
  static std::string file;
  return file;
}

struct Libraries {
  Libraries() {
    const std::filesystem::path torch = folder_of_libtorch();
    // One library for both: LibTorch links its wrapper against NVRTC and the driver, and dlsym() looks
    // through them.
    nvrtc = driver = open(torch / "libcaffe2_nvrtc.so");
    // The driver's functions come from the driver itself if LibTorch's wrapper is missing.
    if (driver == nullptr) driver = open("libcuda.so.1");
    if (const std::string& file = chosen_file(); !file.empty()) {
      nvrtc = open(file);
      if (nvrtc == nullptr) throw Error("no NVRTC: " + std::string(dlerror()));
      return;
    }
    // The wheels' NVRTC first: it has the version that LibTorch was built with.
    const std::string places[] = {torch / "../../nvidia/cu13/lib/libnvrtc.so.13",
                                  torch / "../../nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
                                  "libnvrtc.so.13",
                                  "libnvrtc.so.12",
                                  "/usr/local/cuda/lib64/libnvrtc.so",
                                  "libnvrtc.so"};
    for (const std::string& place : places) {
      if (nvrtc != nullptr) return;
      nvrtc = open(place);
    }
  }
  void* nvrtc = nullptr;
  void* driver = nullptr;
};

const Libraries& libraries() {
  static const Libraries loaded;
  return loaded;
}

template <class Function>
void find_nvrtc(Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(dlsym(libraries().nvrtc, name));
  if (function == nullptr) throw Error(std::string("this NVRTC is too old, it has no ") + name);
}

Nvrtc load_nvrtc() {
  if (libraries().nvrtc == nullptr) {
    throw Error(
        "no NVRTC (libnvrtc.so.13 or .12), neither beside LibTorch nor in a CUDA toolkit: run "
        "cmake/bootstrap --cuda");
  }
  Nvrtc loaded{};
  int (*version)(int*, int*) = nullptr;
  find_nvrtc(version, "nvrtcVersion");
  int major = 0, minor = 0;
  // --std=c++20 needs CUDA 12.
  if (version(&major, &minor) != 0 || major < 12) {
    throw Error("the NVRTC found is CUDA " + std::to_string(major) + "." + std::to_string(minor) +
                "'s, and knows no C++20: run cmake/bootstrap --cuda, or install CUDA 12 or newer");
  }
  loaded.major = major;
  loaded.minor = minor;
  find_nvrtc(loaded.error_string, "nvrtcGetErrorString");
  find_nvrtc(loaded.supported_count, "nvrtcGetNumSupportedArchs");
  find_nvrtc(loaded.supported, "nvrtcGetSupportedArchs");
  find_nvrtc(loaded.create, "nvrtcCreateProgram");
  find_nvrtc(loaded.destroy, "nvrtcDestroyProgram");
  find_nvrtc(loaded.add_name, "nvrtcAddNameExpression");
  find_nvrtc(loaded.compile, "nvrtcCompileProgram");
  find_nvrtc(loaded.log_size, "nvrtcGetProgramLogSize");
  find_nvrtc(loaded.log, "nvrtcGetProgramLog");
  find_nvrtc(loaded.cubin_size, "nvrtcGetCUBINSize");
  find_nvrtc(loaded.cubin, "nvrtcGetCUBIN");
  find_nvrtc(loaded.ptx_size, "nvrtcGetPTXSize");
  find_nvrtc(loaded.ptx, "nvrtcGetPTX");
  find_nvrtc(loaded.lowered_name, "nvrtcGetLoweredName");
  return loaded;
}

}  // namespace

void choose_nvrtc(const std::string& file) { chosen_file() = file; }

const Nvrtc& nvrtc() {
  static const Nvrtc loaded = load_nvrtc();
  return loaded;
}

void* driver_function(const char* name) {
  void* const driver = libraries().driver;
  void* const function = driver == nullptr ? nullptr : dlsym(driver, name);
  if (function == nullptr) throw Error(std::string("the NVIDIA driver (libcuda.so.1) has no ") + name);
  return function;
}

}}}  // namespace holdfast::v0_2::kernels::internal
