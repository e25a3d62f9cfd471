// What a first look at the tensors of a training state finds forgotten, one text each.
//
// Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "holdfast/state/module_state.h"
#include "holdfast/state/optimizer_state.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// Parameters that have a gradient, but that nothing in `trained` (TensorImpls) changes.
std::string untrained_parameters(const ModuleInventory& inventory, const std::set<const void*>& trained);
// Parameters that want a gradient and have none, nor a slot, though others of their module or optimizer have.
std::string parameters_without_gradient(const ModuleInventory& inventory,
                                        std::span<const OptimizerState> optimizers);

// The buffers of modules that somebody besides the module holds, as a member of the program's class does. If
// only the module still holds one later, the program has assigned another tensor to its member.
class HeldBuffers {
 public:
  void remember(const NamedModule& module);
  std::string reassigned(std::span<const NamedModule> modules) const;

 private:
  std::set<std::pair<std::string, const void*>> held_;  // "model/mask"; TensorImpl
};

}}}  // namespace holdfast::v0_2::internal
