// Counters that kernels count their blocks with: zeros, and zeros again when a kernel has run.
//
// Errors: none. Threads: any.
#pragma once

#include <ATen/core/Tensor.h>

namespace holdfast::inline v1::kernels::internal {

// `count` of them for a launch on the current stream. A GPU's are kept, those of a stream for all its
// launches, which come one after the other; made during a capture, they belong to the graph, and a node of it
// sets them to 0.
at::Tensor counters(c10::Device device, int count);

// To plan a grid for; of a CPU a number that decides the bits and is the same everywhere.
int multiprocessors_of(c10::Device device);

}  // namespace holdfast::inline v1::kernels::internal
