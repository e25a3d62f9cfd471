// NVRTC's functions, loaded when first asked for: no header of NVIDIA's is needed to build this, and no
// library to start it.
//
// LibTorch has a small library, libcaffe2_nvrtc.so, whose only use is to be loaded late and to bring NVRTC
// and the driver along, in the versions that it was built for: that is tried first. Where there is no driver,
// NVRTC alone is looked for.
//
// Errors: Error, one line, when nothing can be loaded. Threads: any.
#pragma once

#include <cstddef>
#include <string>

namespace holdfast::inline v1::kernels::internal {

struct Nvrtc {
  using Program = struct NvrtcProgram*;
  using Result = int;  // 0: done

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

const Nvrtc& nvrtc();

// A function of libcuda.so.1, the driver. Error when there is no driver.
void* driver_function(const char* name);

}  // namespace holdfast::inline v1::kernels::internal
