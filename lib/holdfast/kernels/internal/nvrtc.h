// NVRTC's functions, loaded at the first use. The build needs no NVIDIA header, and the start no NVIDIA
// library.
//
// The loader first tries LibTorch's libcaffe2_nvrtc.so, which brings NVRTC and the driver in the versions
// that LibTorch was built for. Without a driver that library does not load; then NVRTC is searched alone.
//
// Errors: Error, one line, if nothing can be loaded. Threads: any.
#pragma once

#include <cstddef>
#include <string>

namespace holdfast { inline namespace v0_2 { namespace kernels::internal {

struct Nvrtc {
  using Program = struct NvrtcProgram*;
  using Result = int;  // 0: success

  int major;
  int minor;
  const char* (*error_string)(Result);
  Result (*supported_count)(int*);
  Result (*supported)(int*);
  Result (*create)(Program*, const char* text, const char* name, int headers, const char* const* texts,
                   const char* const* names);
  Result (*destroy)(Program*);
  Result (*add_name)(Program, const char*);
  Result (*compile)(Program, int options, const char* const*);
  Result (*log_size)(Program, std::size_t*);
  Result (*log)(Program, char*);
  Result (*cubin_size)(Program, std::size_t*);
  Result (*cubin)(Program, char*);
  Result (*ptx_size)(Program, std::size_t*);
  Result (*ptx)(Program, char*);
  Result (*lowered_name)(Program, const char*, const char**);
};

// Uses the NVRTC in this file and searches none. Call before the first use; for programs that compile for
// devices of other machines.
void choose_nvrtc(const std::string& file);

const Nvrtc& nvrtc();

// A function of the driver, libcuda.so.1. Error without a driver.
void* driver_function(const char* name);

}}}  // namespace holdfast::v0_2::kernels::internal
