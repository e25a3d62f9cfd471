// The tensors that must be equal on all ranks, and how to find differences.
//
// Errors: those of take_inventory (state/module_state.h). Threads: one.
#pragma once

#include <string>
#include <vector>

#include "holdfast/snapshot/digest.h"
#include "holdfast/state/module_state.h"

namespace holdfast { inline namespace v0_2 {

// Parameters, then buffers, each tied tensor once, by dotted name.
std::vector<ModuleTensor> replica_of(torch::nn::Module& module);

// One line per tensor: "parameter fc.weight float32 [10, 512]".
std::string layout_text(const std::vector<ModuleTensor>& tensors);
// The first difference of two ranks' layouts: "has … where rank 0 has …". Requires different layouts.
std::string layout_difference(const std::string& own, const std::string& first);

// One digest per tensor, of its bytes in the order of a contiguous tensor.
std::vector<Digest> digests_of(const std::vector<ModuleTensor>& tensors);

}}  // namespace holdfast::v0_2
