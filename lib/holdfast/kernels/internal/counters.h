// Counters with which kernels count their finished blocks. They are zero before a kernel, and it sets them to
// zero again.
//
// Errors: none. Threads: any.
#pragma once

#include <ATen/core/Tensor.h>

namespace holdfast { inline namespace v0_2 { namespace kernels::internal {

// `count` counters for a launch on the current stream. All launches of a stream share theirs, because they
// run in sequence. Counters made during a capture belong to the graph, whose first node sets them to 0.
at::Tensor counters(c10::Device device, int count);

// The number that a grid is planned for. On a CPU it is a constant, because it decides the bits.
int multiprocessors_of(c10::Device device);

}}}  // namespace holdfast::v0_2::kernels::internal
