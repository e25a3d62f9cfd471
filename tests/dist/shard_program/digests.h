// Tensors in short, to compare them between processes.
//
// Threads: free functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace holdfast::test {

at::Tensor flat_of(const std::vector<at::Tensor>& tensors);  // one row of all elements
std::string digest_of_tensors(const std::vector<at::Tensor>& tensors);

}  // namespace holdfast::test
