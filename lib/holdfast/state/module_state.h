// The tensors and flags of torch::nn modules, by dotted name in registration order. Every call walks the
// modules again, so it sees module.to(), load and re-registration.
//
// A tensor registered under several names (tied weights) is stored once, under its first name. The other
// names are aliases, as are those that a module declares in other_keys.h. docs/training_state.md lists the
// attributes.
//
// Errors: UsageError, which names the tensors. Refused are names with '/' or NUL, different tensors that
// share memory, and tensors that overlap themselves (expand()). Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/snapshot/attributes.h"
#include "holdfast/snapshot/tensor_spec.h"
#include "holdfast/state/module_options.h"

namespace torch::nn {
class Module;
}

namespace holdfast { inline namespace v0_2 {

struct NamedModule {
  std::string name;
  torch::nn::Module* module;
  ModuleOptions options = {};
};

struct ModuleTensor {
  std::string name;  // "model/fc.weight"
  at::Tensor tensor;
  bool buffer = false;            // registered as a buffer under at least one name
  bool may_change_shape = false;  // by all modules that register it
  bool digested = false;          // a save records its digest alone (internal/frozen_tensors.h)
};

// The module that a parameter belongs to, and the parameter's name there.
struct ParameterName {
  std::string module;
  std::string dotted;
  bool may_change_shape = false;  // as in ModuleTensor
};

struct ModuleInventory {
  std::vector<ModuleTensor> tensors;                          // parameters, then buffers, of each module
  std::map<std::string, std::string> aliases;                 // full name -> full name of the stored tensor
  std::unordered_map<const void*, ParameterName> parameters;  // key: TensorImpl
};

HOLDFAST_EXPORT ModuleInventory take_inventory(std::span<const NamedModule> modules);

// By TensorImpl: the recorded shapes of tensors that may change theirs, where they differ from the present.
using NewShapes = std::unordered_map<const void*, std::vector<std::int64_t>>;
HOLDFAST_EXPORT NewShapes new_shapes(const ModuleInventory& inventory, std::span<const TensorSpec> recorded);

// Submodules in evaluation mode, by dotted name; "." is the module itself.
HOLDFAST_EXPORT std::vector<std::string> evaluating_in(const torch::nn::Module& root);
// All but those.
HOLDFAST_EXPORT void put_module_attributes(std::span<const NamedModule> modules,
                                           const ModuleInventory& inventory, Attributes& out);
// Sets requires_grad and train/eval flags as recorded. Ignores recorded names that no longer exist.
HOLDFAST_EXPORT void set_module_flags(const NamedModule& module, const Attributes& recorded);

// "model.strides.fc.weight" for "model/fc.weight".
HOLDFAST_EXPORT std::string attribute_of(const std::string& tensor_name, const char* what);

}}  // namespace holdfast::v0_2
