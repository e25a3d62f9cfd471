// The tensors and flags of torch::nn modules, by dotted name in registration order. The modules are walked
// anew each time, so module.to(), load and re-registration are seen.
//
// A tensor that is registered under several names (tied weights) is stored once, under its first name; the
// others are aliases; so are the further names that a module tells of (other_keys.h). Attributes, all of
// which decide the next step:
//
//   <module>.alias.<dotted name>    text: full name of the tensor it is the same as
//   <module>.strides.<dotted name>  integers; only where they are not those of a contiguous tensor
//   <module>.frozen                 texts: parameters without requires_grad
//   <module>.evaluating             texts: submodules in evaluation mode, "." being the module itself
//   <module>.spellings              a record, texts: what to look for in keys of a state dict, what to put
//                                   there, and so on in turns
//
// Errors: UsageError naming the tensors: names with '/' or NUL, tensors that share memory without being the
// same tensor, tensors that overlap themselves (expand()).
// Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "holdfast/snapshot/attributes.h"

namespace torch::nn {
class Module;
}

namespace holdfast::inline v1 {

struct NamedModule {
  std::string name;
  torch::nn::Module* module;
};

struct ModuleTensor {
  std::string name;  // "model/fc.weight"
  at::Tensor tensor;
  bool buffer = false;  // registered as a buffer under any of its names
};

// Which module a parameter belongs to, and its name there.
struct ParameterName {
  std::string module;
  std::string dotted;
};

struct ModuleInventory {
  std::vector<ModuleTensor> tensors;           // parameters, then buffers, of each module
  std::map<std::string, std::string> aliases;  // full name -> full name of the tensor that is stored
  std::unordered_map<const void*, ParameterName> parameters;  // by TensorImpl
};

ModuleInventory take_inventory(std::span<const NamedModule> modules);

void put_module_attributes(std::span<const NamedModule> modules, const ModuleInventory& inventory,
                           Attributes& out);
// Sets requires_grad and train/eval flags as recorded; names that are not there any more are passed over.
void set_module_flags(const NamedModule& module, const Attributes& recorded);

// "model.strides.fc.weight" for "model/fc.weight".
std::string attribute_of(const std::string& tensor_name, const char* what);

}  // namespace holdfast::inline v1
