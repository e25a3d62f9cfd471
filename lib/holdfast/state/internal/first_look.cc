#include "holdfast/state/internal/first_look.h"

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <map>
#include <utility>

#include "holdfast/state/internal/train_state_parts.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

constexpr std::size_t kMostNamed = 6;

std::string module_of(const ModuleTensor& item) { return item.name.substr(0, item.name.find('/')); }

bool has_gradient(const ModuleTensor& item) {
  return !item.buffer && item.tensor.requires_grad() && item.tensor.grad().defined();
}

// "3 parameters (a, b and 1 more)", "parameter a"
std::string named(const std::string& what, const std::vector<std::string>& names) {
  // A short list: a message about a large model must stay readable.
  if (names.size() == 1) return what + " " + names[0];
  std::string list;
  for (std::size_t i = 0; i < names.size() && i < kMostNamed; ++i) list += (i > 0 ? ", " : "") + names[i];
  if (names.size() > kMostNamed) list += " and " + std::to_string(names.size() - kMostNamed) + " more";
  return std::to_string(names.size()) + " " + what + "s (" + list + ")";
}

// Calls visit(name, TensorImpl, how often the modules register it). Copies of tensors would count as holders.
template <class Visit>
void for_each_buffer(const NamedModule& module, const Visit& visit) {
  std::vector<std::pair<std::string, c10::TensorImpl*>> all;
  std::map<c10::TensorImpl*, std::size_t> times;
  for (const auto& item : module.module->named_buffers()) {
    if (!item.value().defined()) continue;
    all.emplace_back(module.name + "/" + item.key(), item.value().unsafeGetTensorImpl());
    ++times[all.back().second];
  }
  for (const auto& [name, tensor] : all) visit(name, tensor, times[tensor]);
}

// Each registration holds the tensor once. Any other holder is a member or a variable of the program.
bool held_elsewhere(c10::TensorImpl* tensor, std::size_t times) {
  return c10::raw::intrusive_ptr::use_count(tensor) > times;
}

}  // namespace

std::string untrained_parameters(const ModuleInventory& inventory, const std::set<const void*>& trained) {
  std::vector<std::string> names;
  for (const ModuleTensor& item : inventory.tensors) {
    // A gradient without an optimizer: such a parameter is computed and then stays as it is.
    if (has_gradient(item) && !trained.contains(item.tensor.unsafeGetTensorImpl()))
      names.push_back(item.name);
  }
  if (names.empty()) return {};
  return named("parameter", names) + (names.size() == 1 ? " has a gradient" : " have gradients") +
         ", and no added optimizer trains " + (names.size() == 1 ? "it" : "them") +
         ": add the optimizer, or freeze what is not trained (requires_grad_(false))";
}

std::string parameters_without_gradient(const ModuleInventory& inventory,
                                        std::span<const OptimizerState> optimizers) {
  std::set<std::string> modules;  // some parameter of them has a gradient
  for (const ModuleTensor& item : inventory.tensors) {
    if (has_gradient(item)) modules.insert(module_of(item));
  }
  std::set<const void*> stepped, in_stepping;  // parameters with slots; all of optimizers that have such
  for (const OptimizerState& part : optimizers) {
    const auto& states = part.optimizer().state();
    // LBFGS keeps one state for all parameters, under the first of them.
    const bool one_for_all = part.one_state();
    for (const auto& group : part.optimizer().param_groups()) {
      for (const at::Tensor& parameter : group.params()) {
        const void* const key = parameter.unsafeGetTensorImpl();
        if (states.find(const_cast<void*>(key)) != states.end() || (one_for_all && !states.empty()))
          stepped.insert(key);
        if (!states.empty()) in_stepping.insert(key);
      }
    }
  }
  std::vector<std::string> names;
  for (const ModuleTensor& item : inventory.tensors) {
    const void* const key = item.tensor.unsafeGetTensorImpl();
    // Frozen parameters and those that had a step are as they should be.
    if (item.buffer || !item.tensor.requires_grad() || item.tensor.grad().defined() || stepped.contains(key))
      continue;
    // A module without any gradient proves nothing: it may be one that the program only evaluates.
    if (in_stepping.contains(key) || modules.contains(module_of(item))) names.push_back(item.name);
  }
  if (names.empty()) return {};
  const bool one = names.size() == 1;
  return named("parameter", names) + (one ? " has" : " have") + " had no gradient so far" +
         ": if nothing uses " + (one ? "it" : "them") + ", each checkpoint stores " + (one ? "it" : "them") +
         " needlessly. After head->weight = embedding->weight the old weight of the head stays registered: "
         "torch::nn::functional::linear(x, embedding->weight) needs no head";
}

void HeldBuffers::remember(const NamedModule& module) {
  for_each_buffer(module, [&](const std::string& name, c10::TensorImpl* tensor, std::size_t times) {
    if (held_elsewhere(tensor, times)) held_.emplace(name, tensor);
  });
}

std::string HeldBuffers::reassigned(std::span<const NamedModule> modules) const {
  std::vector<std::string> names;
  for (const NamedModule& module : modules) {
    for_each_buffer(module, [&](const std::string& name, c10::TensorImpl* tensor, std::size_t times) {
      // Nobody else holds the tensor now, so the member has been given another one.
      if (held_.contains({name, tensor}) && !held_elsewhere(tensor, times)) names.push_back(name);
    });
  }
  if (names.empty()) return {};
  const bool one = names.size() == 1;
  return named("buffer", names) + (one ? " is" : " are") +
         " no longer what the program uses: another tensor was assigned to the member, and the registered "
         "one keeps its old values: write into it (mask.copy_(…)) instead of assigning";
}

}}}  // namespace holdfast::v0_2::internal
