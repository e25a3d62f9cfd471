// The form of a training state: what a start of the program makes before it loads. TrainState::check()
// refuses a checkpoint of another form, so a state of another form must not be saved.
//
// Not part of it, because a load brings it back: values, slots, strides of a tensor with memory of its own,
// requires_grad, train/eval, and what components write.
// Threads: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/snapshot/attributes.h"
#include "holdfast/snapshot/tensor_spec.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

struct StateForm {
  struct Optimizer {
    std::string name;
    std::vector<std::vector<std::string>> groups;  // names of their parameters
    bool may_append_groups = false;
    bool operator==(const Optimizer&) const = default;
  };
  std::vector<TensorSpec> tensors;             // of modules
  std::set<std::string> any_shape;             // of these; their shape is left out
  std::map<std::string, std::string> aliases;  // as in ModuleInventory
  std::vector<Optimizer> optimizers;
  std::vector<std::pair<std::string, AttributeValue>> options;
  std::size_t gpus = 0;  // that hold tensors of modules: their random numbers are saved
  // Strides of tensors that share their memory: a load cannot give them others.
  std::map<std::string, std::vector<std::int64_t>> strides;
};

}}}  // namespace holdfast::v0_2::internal
