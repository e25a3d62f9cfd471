// Kernels' text to a GPU's code by NVRTC, NVIDIA's compiler as a library. It needs no GPU, but to be found:
// LibTorch's own, beside it, or one that the loader knows; a CUDA toolkit has it, and the wheel's CUDA
// packages.
//
// Errors: Error, one line, when there is no NVRTC (and where it was looked for), or when a kernel does not
// compile: its name, the architecture and the first lines of the compiler's log.
// Threads: any.
#pragma once

#include <string>
#include <vector>

#include "holdfast/kernels/source.h"

namespace holdfast::inline v1::kernels {

// Empty: NVRTC is here. Else why not.
std::string why_no_compiler();

// The architectures that this NVRTC knows: 75, 80, 90, … for compute capability 7.5, 8.0, 9.0.
std::vector<int> known_architectures();

struct Compiled {
  std::string image;                 // what cuModuleLoadData takes
  std::vector<std::string> symbols;  // of the kernels, in the order asked for
  std::string log;                   // what the compiler had to say
};

// `types`: names of kernels (structs) in `source`. `architecture`: the device's; of a newer one than NVRTC
// knows, PTX for the newest that it knows. `portable`: PTX in any case, which is quicker made.
Compiled compile(const Source& source, const std::vector<std::string>& types, int architecture,
                 bool portable = false, const std::vector<std::string>& options = {});

}  // namespace holdfast::inline v1::kernels
