// LBFGS keeps one state for all parameters: scalars, three vectors, and three queues of history. These
// functions convert its fields to attributes "<prefix>.…" and named tensors, and back.
//
// Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/lbfgs.h>

#include <functional>
#include <string>
#include <vector>

#include "holdfast/snapshot/attributes.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// One tensor of the state, with its name.
struct LbfgsField {
  std::string name;  // "d", "old_dirs.3"
  at::Tensor* tensor;
};

// The defined tensors, in a fixed order.
std::vector<LbfgsField> lbfgs_fields(torch::optim::LBFGSParamState& state);
void put_lbfgs_attributes(const std::string& prefix, torch::optim::LBFGSParamState& state, Attributes& out);
// Fills `state` with the recorded scalars, and with queues of the recorded lengths whose tensors come from
// `tensor(name)`. Throws RefusedError for attributes that are missing or contradict each other.
void fill_lbfgs(const std::string& prefix, const Attributes& recorded, std::int64_t longest_history,
                const std::function<at::Tensor(const std::string& name)>& tensor,
                torch::optim::LBFGSParamState& state);

}}}  // namespace holdfast::v0_2::internal
