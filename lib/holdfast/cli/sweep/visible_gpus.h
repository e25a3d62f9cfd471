// The GPUs, or MIG slices, of this machine that a program may use, as CUDA_VISIBLE_DEVICES names them.
//
// Errors: none; without NVIDIA's driver there are none. Threads: any. Runs nvidia-smi, which may take
// seconds.
#pragma once

#include <string>
#include <vector>

namespace holdfast { inline namespace v0_2 {

// Those of CUDA_VISIBLE_DEVICES if it is set; an empty value hides all. Otherwise all that `nvidia-smi -L`
// lists, by UUID, because CUDA may number them in another order. Of a GPU with MIG slices: the slices.
std::vector<std::string> visible_gpus();

// Divides them equally among `runs`: the texts for CUDA_VISIBLE_DEVICES. Empty if there are none. A run gets
// one MIG slice at most, because CUDA shows a process no second one.
// Throws UsageError if there are fewer than `runs`.
std::vector<std::string> shares_of_gpus(const std::vector<std::string>& gpus, std::size_t runs);

}}  // namespace holdfast::v0_2
