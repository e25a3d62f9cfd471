// Where the text of kernels comes from. It is part of the library (holdfast_embed_kernels() in
// cmake/module.cmake), because machine code is made at run time for the device that the program finds.
//
// Threads: values.
#pragma once

#include <span>

namespace holdfast { inline namespace v0_2 { namespace kernels {

// One file, with the path by which others include it: "holdfast/kernels/device_code.h".
struct Text {
  const char* path;
  const char* text;
};

// A file with kernels, and the texts of the files that it includes. device_code.h is always available. Define
// it as a constant at namespace scope, because it is a template argument of launch() (kernel.h).
struct Source {
  const char* path;
  std::span<const Text> (*texts)();
};

std::span<const Text> texts_of_kernels();

}}}  // namespace holdfast::v0_2::kernels
