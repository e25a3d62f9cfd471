// Where kernels come from. Their text is part of the library (holdfast_embed_kernels() in cmake/module.cmake
// puts it there), because a GPU's machine code is made at run time, for the device that is there.
//
// Threads: values.
#pragma once

#include <span>

namespace holdfast::inline v1::kernels {

// One file under the path by which others include it, "holdfast/kernels/device_code.h".
struct Text {
  const char* path;
  const char* text;
};

// A file with kernels, and the texts that it and what it includes are found in. device_code.h is always
// found. Made as a constant at namespace scope: launch() (kernel.h) takes it as a template argument.
struct Source {
  const char* path;
  std::span<const Text> (*texts)();
};

std::span<const Text> texts_of_kernels();

}  // namespace holdfast::inline v1::kernels
