// LBFGS keeps one state for all parameters: scalars, three vectors, and three queues of history. Its fields
// as attributes "<prefix>.…" and as named tensors, and back.
//
// Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/lbfgs.h>

#include <functional>
#include <string>
#include <vector>

#include "holdfast/snapshot/attributes.h"

namespace holdfast::inline v1::internal {

// Where one tensor of the state goes: name and a reference to it.
struct LbfgsField {
  std::string name;  // "d", "old_dirs.3"
  at::Tensor* tensor;
};

// The tensors that are there, in a fixed order.
std::vector<LbfgsField> lbfgs_fields(torch::optim::LBFGSParamState& state);
void put_lbfgs_attributes(const std::string& prefix, torch::optim::LBFGSParamState& state, Attributes& out);
// A state with the recorded scalars and queues of the recorded lengths; sets every tensor from
// `tensor(name)`. RefusedError for attributes that are missing or make no sense.
void fill_lbfgs(const std::string& prefix, const Attributes& recorded, std::int64_t longest_history,
                const std::function<at::Tensor(const std::string& name)>& tensor,
                torch::optim::LBFGSParamState& state);

}  // namespace holdfast::inline v1::internal
