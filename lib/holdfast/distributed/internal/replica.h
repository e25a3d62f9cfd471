// The tensors that all ranks must hold alike, and where they do not.
//
// Errors: those of take_inventory (state/module_state.h). Threads: one.
#pragma once

#include <string>
#include <vector>

#include "holdfast/snapshot/digest.h"
#include "holdfast/state/module_state.h"

namespace holdfast::inline v1 {

// Parameters, then buffers, each once (tied weights), by dotted name.
std::vector<ModuleTensor> replica_of(torch::nn::Module& module);

// One line a tensor: "parameter fc.weight float32 [10, 512]".
std::string layout_text(const std::vector<ModuleTensor>& tensors);
// Where the layouts of two ranks first differ: "has … where rank 0 has …". Requires that they do.
std::string layout_difference(const std::string& own, const std::string& first);

// One digest a tensor, of the bytes as a contiguous tensor has them.
std::vector<Digest> digests_of(const std::vector<ModuleTensor>& tensors);

}  // namespace holdfast::inline v1
