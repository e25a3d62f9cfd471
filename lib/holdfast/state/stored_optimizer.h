// For a class of your own with save() and load() (stateful.h): an optimizer, and tensors of any shape. It is
// what TrainState does for a module that may change its shape, without a module.
//
//   void save(StateWriter& out) const {
//     put_tensors(out, "splats", {{"means", means_}, {"scales", scales_}});
//     put_optimizer(out, "adam", {{"means", means_}, {"scales", scales_}}, adam_);
//   }
//   void load(const StateReader& in) { get_tensors(in, "splats", …);  get_optimizer(in, "adam", …, adam_); }
//
// Errors: put: UsageError for what no file can hold. get: RefusedError (78), which names what differs; the
// tensors, or the optimizer, are then as they were. Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/state/stateful.h"

namespace torch::optim {
class Optimizer;
}

namespace holdfast { inline namespace v0_2 {

struct NamedTensor {
  std::string name;  // without '/', such as "means"; unique in its list
  at::Tensor tensor;
};

// Tensors "<name>/<tensor's name>", with strides and requires_grad.
HOLDFAST_EXPORT void put_tensors(StateWriter& out, const std::string& name,
                                 const std::vector<NamedTensor>& tensors);
// Gives each of these tensors the recorded shape, strides, requires_grad and bytes. It stays the same object
// on the same device, so optimizers that hold it need nothing. Refuses other names and other types.
HOLDFAST_EXPORT void get_tensors(const StateReader& in, const std::string& name,
                                 const std::vector<NamedTensor>& tensors);

// Slots, counts and options of an optimizer that optimizer_state.h knows. `parameters`: all parameters of its
// groups, with their names. Options are state here: get_optimizer() restores them, and resume() compares
// none. To compare one, say so in save(): out.option("lr", lr).
HOLDFAST_EXPORT void put_optimizer(StateWriter& out, const std::string& name,
                                   const std::vector<NamedTensor>& parameters,
                                   const torch::optim::Optimizer& optimizer);
// After get_tensors(), because a slot must have the shape of its parameter. Refuses another type of
// optimizer, another number of groups, and other parameters in a group.
HOLDFAST_EXPORT void get_optimizer(const StateReader& in, const std::string& name,
                                   const std::vector<NamedTensor>& parameters,
                                   torch::optim::Optimizer& optimizer);

}}  // namespace holdfast::v0_2
