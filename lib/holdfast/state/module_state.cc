#include "holdfast/state/module_state.h"

#include <ATen/MemoryOverlap.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/utf8.h"
#include "holdfast/state/other_keys.h"
#include "holdfast/state/tensor_bytes.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// Names of optimizer slots put a prefix before this name, and a whole name has at most 1,024 bytes.
constexpr std::size_t kMostName = 768;
// What to do about a registered tensor that no file can hold.
constexpr char kUnregistered[] =
    "do not register it: keep it as a member, and store what it is made of (state/stateful.h)";

bool same_view(const at::Tensor& a, const at::Tensor& b) {
  // One object, or one memory seen in one way: both are one tensor in the file.
  if (a.unsafeGetTensorImpl() == b.unsafeGetTensorImpl()) return true;
  return a.numel() > 0 && a.const_data_ptr() == b.const_data_ptr() && a.device() == b.device() &&
         a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.strides() == b.strides();
}

// Device, first byte, one past the last byte.
using Extent = std::tuple<c10::DeviceIndex, std::uintptr_t, std::uintptr_t>;

// LibTorch has no negative strides, so the first element has the lowest address and the last one the highest.
Extent extent_of(const at::Tensor& tensor) {
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  return {tensor.device().index(), begin,
          begin + (static_cast<std::uintptr_t>(last) + 1) * tensor.element_size()};
}

class Taker {
 public:
  ModuleInventory inventory;

  void add(const NamedModule& part, const std::string& dotted, const at::Tensor& tensor, bool buffer) {
    const std::string& module = part.name;
    const bool may_change_shape = part.options.may_change_shape;
    if (dotted.find('/') != std::string::npos || dotted.find('\0') != std::string::npos) {
      throw UsageError("the name '" + printable(dotted) + "' in module '" + module +
                       "' holds '/' or NUL and cannot be stored: register it under another");
    }
    if (dotted.size() > kMostName || !is_utf8(dotted)) {
      throw UsageError("the name '" + printable(dotted) + "' in module '" + module +
                       (dotted.size() > kMostName
                            ? "' has " + std::to_string(dotted.size()) + " bytes, and at most " +
                                  std::to_string(kMostName) + " can be stored"
                            : "' is not UTF-8 and cannot be stored") +
                       ": register it under another");
    }
    std::string name = module + "/" + dotted;
    // Throws for tensors that cannot be stored, before anything is kept.
    static_cast<void>(stored_type(name, tensor, kUnregistered));
    // The first module that registers a shared parameter names its optimizer slots.
    if (!buffer) {
      const auto known = inventory.parameters.try_emplace(tensor.unsafeGetTensorImpl(),
                                                          ParameterName{module, dotted, may_change_shape});
      known.first->second.may_change_shape &= may_change_shape;
    }
    const auto [first, last] = by_address_.equal_range(address_of(tensor));
    // Two modules may share a tensor; it is stored once and named twice.
    for (auto it = first; it != last; ++it) {
      ModuleTensor& known = inventory.tensors[it->second];
      if (!same_view(known.tensor, tensor)) continue;
      known.buffer |= buffer;
      // Another shape means new memory, which one of two tensors would not get.
      if ((may_change_shape || known.may_change_shape) && !known.tensor.is_same(tensor)) {
        throw UsageError("'" + known.name + "' and '" + name +
                         "' are two tensors over one memory, so they cannot change their shape together: "
                         "register one tensor twice, or add the module without may_change_shape");
      }
      known.may_change_shape &= may_change_shape;
      inventory.aliases.emplace(std::move(name), known.name);
      return;
    }
    // A tensor of expand() has more elements than memory: a load would write the same memory several times.
    if (at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
      throw UsageError("elements of '" + name +
                       "' share memory (expand()?), so they cannot be restored: register a clone() of it");
    }
    by_address_.emplace(address_of(tensor), inventory.tensors.size());
    inventory.tensors.push_back({std::move(name), tensor, buffer, may_change_shape});
  }

  // Adds an alias that the module itself does not register.
  void tie(const std::string& module, const TiedKey& tied) {
    std::string stored = module + "/" + tied.stored;
    // The module's own alias leads on to the stored tensor.
    const auto again = inventory.aliases.find(stored);
    if (again != inventory.aliases.end()) stored = again->second;
    inventory.aliases.emplace(module + "/" + tied.key, std::move(stored));
  }

  // Sorted by first byte, so comparing neighbours finds an overlap if there is one.
  void refuse_overlaps() const {
    std::vector<std::pair<Extent, const ModuleTensor*>> extents;
    for (const ModuleTensor& item : inventory.tensors) {
      if (item.tensor.numel() > 0) extents.emplace_back(extent_of(item.tensor), &item);
    }
    std::sort(extents.begin(), extents.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (std::size_t i = 1; i < extents.size(); ++i) {
      const auto& [device, begin, end] = extents[i - 1].first;
      const auto& [next_device, next_begin, next_end] = extents[i].first;
      if (device != next_device || end <= next_begin) continue;
      throw UsageError("'" + extents[i - 1].second->name + "' and '" + extents[i].second->name +
                       "' share memory without being the same tensor, so neither can be restored alone: "
                       "register one tensor and take views of it in forward()");
    }
  }

 private:
  // Empty tensors have no address; their identity distinguishes them.
  static std::uintptr_t address_of(const at::Tensor& tensor) {
    return reinterpret_cast<std::uintptr_t>(tensor.numel() > 0 ? tensor.const_data_ptr()
                                                               : tensor.unsafeGetTensorImpl());
  }

  std::unordered_multimap<std::uintptr_t, std::size_t> by_address_;
};

// Visits parents before children. Unlike named_modules(), this works for a module that no shared_ptr owns.
template <class F>
void for_each_module(const torch::nn::Module& root, F&& visit) {
  root.apply(torch::nn::Module::ConstNamedModuleApplyFunction(
      [&](const std::string& name, const torch::nn::Module& module) {
        visit(name.empty() ? std::string(".") : name, module);
      }));
}

}  // namespace

ModuleInventory take_inventory(std::span<const NamedModule> modules) {
  Taker taker;
  for (const NamedModule& part : modules) {
    // Parameters first: a tensor that is registered as both has its parameter's name in the file.
    for (const auto& item : part.module->named_parameters()) taker.add(part, item.key(), item.value(), false);
    for (const auto& item : part.module->named_buffers()) taker.add(part, item.key(), item.value(), true);
    const auto* const others = dynamic_cast<const OtherKeys*>(part.module);
    if (others == nullptr) continue;
    for (const TiedKey& tied : others->tied_keys()) taker.tie(part.name, tied);
  }
  taker.refuse_overlaps();
  return std::move(taker.inventory);
}

NewShapes new_shapes(const ModuleInventory& inventory, std::span<const TensorSpec> recorded) {
  NewShapes shapes;
  std::unordered_map<std::string_view, const ModuleTensor*> changing;
  for (const ModuleTensor& item : inventory.tensors) {
    if (item.may_change_shape) changing.emplace(item.name, &item);
  }
  if (changing.empty()) return shapes;
  for (const TensorSpec& spec : recorded) {
    const auto found = changing.find(spec.name);
    if (found == changing.end() || found->second->tensor.sizes() == at::IntArrayRef(spec.shape)) continue;
    shapes.emplace(found->second->tensor.unsafeGetTensorImpl(), spec.shape);
  }
  return shapes;
}

std::string attribute_of(const std::string& tensor_name, const char* what) {
  const std::size_t slash = tensor_name.find('/');
  return tensor_name.substr(0, slash) + "." + what + "." + tensor_name.substr(slash + 1);
}

std::vector<std::string> evaluating_in(const torch::nn::Module& root) {
  std::vector<std::string> evaluating;
  for_each_module(root, [&](const std::string& dotted, const torch::nn::Module& part) {
    if (!part.is_training()) evaluating.push_back(dotted);
  });
  return evaluating;
}

void put_module_attributes(std::span<const NamedModule> modules, const ModuleInventory& inventory,
                           Attributes& out) {
  for (const auto& [name, target] : inventory.aliases) out.set(attribute_of(name, "alias"), target);
  // Only unusual strides, so that files of most models have no such attribute.
  for (const ModuleTensor& item : inventory.tensors) {
    if (auto strides = unusual_strides(item.tensor)) out.set(attribute_of(item.name, "strides"), *strides);
  }
  for (const auto& [name, module, options] : modules) {
    std::vector<std::string> frozen;
    for (const auto& item : module->named_parameters()) {
      // Parameters are listed that are frozen, because usually few or none are.
      if (!item.value().requires_grad()) frozen.push_back(item.key());
    }
    out.set(name + ".frozen", std::move(frozen));
    const auto* const others = dynamic_cast<const OtherKeys*>(module);
    if (others == nullptr) continue;
    std::vector<std::string> spellings;
    for (const auto& [there, here] : others->spellings()) spellings.insert(spellings.end(), {there, here});
    // A record: it helps to read foreign weights and decides no step.
    if (!spellings.empty()) out.set(name + ".spellings", std::move(spellings), Role::record);
  }
}

void set_module_flags(const NamedModule& module, const Attributes& recorded) {
  const auto& frozen = recorded.get_strings(module.name + ".frozen");
  const std::set<std::string> still(frozen.begin(), frozen.end());
  for (auto& item : module.module->named_parameters()) {
    const bool wanted = !still.contains(item.key());
    if (item.value().requires_grad() != wanted) item.value().requires_grad_(wanted);
  }
  const auto& evaluating = recorded.get_strings(module.name + ".evaluating");
  const std::set<std::string> resting(evaluating.begin(), evaluating.end());
  // train() also sets the children. They are visited later, so their own flag wins.
  module.module->apply(
      torch::nn::Module::NamedModuleApplyFunction([&](const std::string& name, torch::nn::Module& part) {
        const bool training = !resting.contains(name.empty() ? "." : name);
        if (part.is_training() != training) part.train(training);
      }));
}

}}  // namespace holdfast::v0_2
