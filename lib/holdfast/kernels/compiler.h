// Compiles kernels' text for a GPU with NVRTC, NVIDIA's compiler as a library. It needs no GPU. It searches
// NVRTC where LibTorch keeps its own, beside LibTorch, and where the loader looks. CUDA toolkits and the
// wheel's CUDA packages have it.
//
// Errors: Error, one line. Without NVRTC it lists the places that were searched. If a kernel does not
// compile, it has the kernel's name, the architecture and the first lines of the compiler's log. Threads:
// any.
#pragma once

#include <string>
#include <vector>

#include "holdfast/kernels/source.h"

namespace holdfast { inline namespace v0_2 { namespace kernels {

// Empty if NVRTC was found; otherwise the reason why not.
std::string why_no_compiler();

// Architectures that this NVRTC supports: 75, 80, 90, … for compute capability 7.5, 8.0, 9.0.
std::vector<int> known_architectures();

// NVRTC's version, and the options that every kernel gets.
std::string compiler_version();

struct Compiled {
  std::string image;                 // input of cuModuleLoadData
  std::vector<std::string> symbols;  // symbols of the kernels, in the order of `types`
  std::string log;                   // output of the compiler
};

// `types`: names of kernels (structs) in `source`. `architecture`: that of the device. If NVRTC does not know
// it, the result is PTX for the newest architecture that NVRTC knows. `portable`: always PTX, which compiles
// faster.
Compiled compile(const Source& source, const std::vector<std::string>& types, int architecture,
                 bool portable = false, const std::vector<std::string>& options = {});

}}}  // namespace holdfast::v0_2::kernels
