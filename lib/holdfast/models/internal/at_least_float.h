// Threads: pure. Errors: none.
#pragma once

#include <ATen/core/Tensor.h>

namespace holdfast::inline v1::models {

// 16-bit values as float32, wider ones as they are: for sums and logarithms in whatever autocast left behind.
inline at::Tensor at_least_float(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
}

}  // namespace holdfast::inline v1::models
