// Threads: pure. Errors: none.
#pragma once

#include <ATen/core/Tensor.h>

namespace holdfast { inline namespace v0_2 { namespace models {

// 16-bit values as float32, wider ones unchanged: for sums and logarithms after autocast.
inline at::Tensor at_least_float(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
}

}}}  // namespace holdfast::v0_2::models
