#include "holdfast/state/stored_optimizer.h"

#include <ATen/core/grad_mode.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/utf8.h"
#include "holdfast/snapshot/attributes.h"
#include "holdfast/state/internal/lbfgs_fields.h"
#include "holdfast/state/internal/train_state_parts.h"
#include "holdfast/state/optimizer_fields.h"
#include "holdfast/state/optimizer_state.h"
#include "holdfast/state/tensor_bytes.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::string_view kEnvironment = "environment.";
constexpr char kMaximize[] = ".maximize";
using Names = std::vector<std::string>;

std::string nth_group(const std::string& optimizer, std::size_t group) {
  return optimizer + ".group." + std::to_string(group) + ".";
}

Names names_of(const std::string& list, const std::vector<NamedTensor>& tensors) {
  std::set<std::string> known;
  Names names;
  for (const NamedTensor& item : tensors) {
    if (item.name.empty() || item.name.find('/') != std::string::npos || !known.insert(item.name).second) {
      throw UsageError("'" + printable(item.name) + "' cannot name a tensor of '" + printable(list) +
                       "': it is empty, has a '/', or is there twice");
    }
    names.push_back(item.name);
  }
  return names;
}

// As if a module without a name had registered these parameters.
ModuleInventory inventory_of(const std::string& name, const std::vector<NamedTensor>& parameters,
                             const torch::optim::Optimizer& optimizer) {
  static_cast<void>(names_of(name, parameters));
  ModuleInventory inventory;
  for (const NamedTensor& item : parameters) {
    inventory.parameters.try_emplace(item.tensor.unsafeGetTensorImpl(), ParameterName{{}, item.name, true});
  }
  for (std::size_t g = 0; g < optimizer.param_groups().size(); ++g) {
    for (const at::Tensor& parameter : optimizer.param_groups()[g].params()) {
      if (inventory.parameters.contains(parameter.unsafeGetTensorImpl())) continue;
      throw UsageError("a parameter of group " + std::to_string(g) + " of '" + name + "', of shape " +
                       shape_text(parameter.sizes()) + ", is not among the parameters that have a name");
    }
  }
  return inventory;
}

// The recorded value of an option of that type.
struct OptionIn {
  const StateReader& in;
  const std::string& name;

  AttributeValue operator()(const double*) const { return in.get_double(name); }
  AttributeValue operator()(const bool*) const { return in.get_bool(name); }
  AttributeValue operator()(const std::int64_t*) const { return in.get_int(name); }
  AttributeValue operator()(const std::tuple<double, double>*) const { return in.get_doubles(name); }
  AttributeValue operator()(const std::optional<std::string>*) const { return in.get_string(name); }
  AttributeValue operator()(const std::optional<std::int64_t>*) const {
    try {
      return in.get_int(name);
    } catch (const RefusedError&) {  // or the word for none
      return in.get_string(name);
    }
  }
};

// What put_optimizer() wrote, as OptimizerState reads it from a checkpoint.
class RecordedOptimizer {
 public:
  RecordedOptimizer(const StateReader& in, std::string name, const OptimizerKind& kind,
                    const torch::optim::Optimizer& optimizer)
      : in_(in), name_(std::move(name)) {
    attributes.set(name_ + ".type", in_.get_string(name_ + ".type"));
    Names parameters;
    for (std::size_t g = 0; in_.has(nth_group(name_, g) + "parameters"); ++g) {
      const std::string prefix = nth_group(name_, g);
      Names names = in_.get_strings(prefix + "parameters");
      parameters.insert(parameters.end(), names.begin(), names.end());
      attributes.set(prefix + "parameters", std::move(names));
      if (!kind.one_state) attributes.set(prefix + "steps", in_.get_ints(prefix + "steps"));
    }
    if (attributes.get_string(name_ + ".type") != kind.name) return;  // the caller refuses it
    for (std::size_t g = 0; g < optimizer.param_groups().size(); ++g) {
      // The values of these are not used, only their names and types.
      const auto options = optimizer.param_groups()[g].options().clone();
      internal::visit_options(kind, *options, name_, [&](const char* option, const OptionField& field) {
        const std::string full = nth_group(name_, g) + "now." + option;
        if (in_.has(nth_group(name_, g) + "parameters"))
          attributes.set(full, std::visit(OptionIn{in_, full}, field));
      });
    }
    if (kind.one_state) {
      take_lbfgs();
      return;
    }
    const auto state = kind.make_state();
    kind.slots(*state, [&](const char* slot, const at::Tensor&) {
      for (const std::string& parameter : parameters) take(slot + ("/" + parameter));
    });
  }

  const at::Tensor& tensor(const std::string& name) const { return tensors_.at(name); }

  Attributes attributes;
  std::vector<TensorSpec> specs;

 private:
  bool take(const std::string& slot) {
    const std::string name = name_ + "/" + slot;
    if (!in_.has_tensor(name)) return false;
    if (tensors_.contains(name)) return true;
    at::Tensor tensor = in_.get_tensor(name);
    specs.push_back(spec_of(name, tensor));
    tensors_.emplace(name, std::move(tensor));
    const std::string strides = attribute_of(name, "strides");
    if (in_.has(strides)) attributes.set(strides, in_.get_ints(strides));
    return true;
  }

  void take_lbfgs() {
    const std::string prefix = name_ + ".lbfgs.";
    if (!in_.has(prefix + "n_iter")) return;
    for (const char* const name : {"func_evals", "n_iter", "old_dirs", "old_stps", "ro"}) {
      attributes.set(prefix + name, in_.get_int(prefix + name));
    }
    for (const char* const name : {"t", "prev_loss"})
      attributes.set(prefix + name, in_.get_double(prefix + name));
    attributes.set(prefix + "vectors", in_.get_strings(prefix + "vectors"));
    for (const std::string& name : attributes.get_strings(prefix + "vectors")) take("lbfgs/" + name);
    if (in_.has(prefix + "al")) {
      attributes.set(prefix + "al", in_.get_int(prefix + "al"));
      attributes.set(prefix + "al_used", in_.get_ints(prefix + "al_used"));
      for (const std::int64_t i : attributes.get_ints(prefix + "al_used"))
        take("lbfgs/al." + std::to_string(i));
    }
    for (const char* const queue : {"old_dirs", "old_stps", "ro"}) {
      // A wrong length is refused later.
      for (std::int64_t i = 0; i < attributes.get_int(prefix + queue); ++i) {
        if (!take("lbfgs/" + (queue + ("." + std::to_string(i))))) break;
      }
    }
  }

  const StateReader& in_;
  const std::string name_;
  std::map<std::string, at::Tensor> tensors_;
};

const OptimizerKind& known_kind(const std::string& name, const torch::optim::Optimizer& optimizer) {
  const OptimizerKind* const kind = kind_of(optimizer);
  // Says which ones are known.
  if (kind == nullptr) OptimizerState(name, const_cast<torch::optim::Optimizer&>(optimizer));
  return *kind;
}

bool dense(const std::vector<std::int64_t>& strides, const at::Tensor& tensor) {
  return dense_strides(tensor.sizes(), strides);
}

}  // namespace

void put_tensors(StateWriter& out, const std::string& name, const std::vector<NamedTensor>& tensors) {
  out.put(name + ".tensors", names_of(name, tensors));
  Names with_gradient;
  for (const NamedTensor& item : tensors) {
    const std::string full = name + "/" + item.name;
    static_cast<void>(stored_type(full, item.tensor));
    if (item.tensor.requires_grad()) with_gradient.push_back(item.name);
    // ATen chooses kernels by them. A view with holes comes back without them.
    if (auto strides = unusual_strides(item.tensor); strides && dense(*strides, item.tensor)) {
      out.put(attribute_of(full, "strides"), *std::move(strides));
    }
    out.put_tensor(full, item.tensor.detach());
  }
  out.put(name + ".requires_grad", std::move(with_gradient));
}

void get_tensors(const StateReader& in, const std::string& name, const std::vector<NamedTensor>& tensors) {
  Names here = names_of(name, tensors), there = in.get_strings(name + ".tensors");
  const Names grad = in.get_strings(name + ".requires_grad");
  std::sort(here.begin(), here.end());
  std::sort(there.begin(), there.end());
  if (here != there) {
    throw RefusedError("refused: '" + name + "' has the tensors " + internal::joined(here, here.size()) +
                       " here and " + internal::joined(there, there.size()) + " in the checkpoint");
  }
  // Everything that can fail comes before the first change.
  std::vector<at::Tensor> recorded;
  for (const NamedTensor& item : tensors) {
    const std::string full = name + "/" + item.name;
    at::Tensor tensor = in.get_tensor(full);
    if (tensor.scalar_type() != item.tensor.scalar_type()) {
      throw RefusedError("refused: " + full + " is " + internal::type_and_shape(spec_of(full, item.tensor)) +
                         " here and " + internal::type_and_shape(spec_of(full, tensor)) +
                         " in the checkpoint");
    }
    const std::string strides = attribute_of(full, "strides");
    std::optional<std::vector<std::int64_t>> wanted;
    if (in.has(strides)) wanted = in.get_ints(strides);
    const at::NoGradGuard no_grad;
    if (wanted || !item.tensor.is_cpu()) {
      const at::Tensor fresh =
          empty_like_spec(spec_of(full, tensor), std::move(wanted), item.tensor.device());
      tensor = fresh.copy_(tensor);
    }
    recorded.push_back(std::move(tensor));
  }
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i].tensor;
    if (tensor.sizes() == recorded[i].sizes() && tensor.strides() == recorded[i].strides()) {
      tensor.detach().copy_(recorded[i]);  // views of it follow
    } else {
      // A gradient of the old shape would meet the next backward pass.
      if (tensor.sizes() != recorded[i].sizes()) tensor.mutable_grad() = at::Tensor();
      tensor.set_data(recorded[i]);
    }
    tensor.set_requires_grad(std::find(grad.begin(), grad.end(), tensors[i].name) != grad.end());
  }
}

void put_optimizer(StateWriter& out, const std::string& name, const std::vector<NamedTensor>& parameters,
                   const torch::optim::Optimizer& optimizer) {
  // OptimizerState reads alone here, and torch's accessors are not const.
  auto& target = const_cast<torch::optim::Optimizer&>(optimizer);
  OptimizerState part(name, target);
  const OptimizerKind& kind = known_kind(name, optimizer);
  const OptimizerInventory inventory = part.take_inventory(inventory_of(name, parameters, optimizer));
  if (!inventory.misfits.empty()) throw UsageError(internal::joined(inventory.misfits, 8));
  Attributes attributes;
  Names options;
  part.put_attributes(inventory, attributes, options);
  for (const auto& [full, attribute] : attributes) {
    if (full.starts_with(kEnvironment)) {
      out.environment(full.substr(kEnvironment.size()), attribute.value);
    } else if (full == name + kMaximize || std::find(options.begin(), options.end(), full) == options.end()) {
      out.put(full, attribute.value);
    }
  }
  for (std::size_t g = 0; g < target.param_groups().size(); ++g) {
    internal::visit_options(kind, target.param_groups()[g].options(), name,
                            [&](const char* option, const OptionField& field) {
                              out.put(nth_group(name, g) + "now." + option, internal::to_value(field));
                            });
  }
  for (const SlotTensor& slot : inventory.slots) out.put_tensor(slot.name, slot.tensor);
}

void get_optimizer(const StateReader& in, const std::string& name, const std::vector<NamedTensor>& parameters,
                   torch::optim::Optimizer& optimizer) {
  OptimizerState part(name, optimizer);
  const ModuleInventory inventory = inventory_of(name, parameters, optimizer);
  const RecordedOptimizer recorded(in, name, known_kind(name, optimizer), optimizer);
  Names texts = part.differences(inventory, recorded.specs, recorded.attributes);
  const auto* const own = dynamic_cast<const OwnOptimizer*>(&optimizer);
  if (in.has(name + kMaximize) != (own != nullptr && own->maximizes())) {
    texts.push_back("'" + name + "' goes up the gradient only " +
                    (in.has(name + kMaximize) ? "there" : "here"));
  }
  if (!texts.empty()) throw RefusedError("refused: " + internal::joined(texts, 8));
  auto loaded =
      part.prepare(inventory, recorded.specs, recorded.attributes,
                   [&](const TensorSpec& spec, const at::Tensor& parameter) {
                     const std::string strides = attribute_of(spec.name, "strides");
                     std::optional<std::vector<std::int64_t>> wanted;
                     if (recorded.attributes.has(strides)) wanted = recorded.attributes.get_ints(strides);
                     const at::Tensor& tensor = recorded.tensor(spec.name);
                     if (!wanted && parameter.is_cpu()) return tensor;
                     const at::NoGradGuard no_grad;
                     return empty_like_spec(spec, std::move(wanted), parameter.device()).copy_(tensor);
                   });
  part.install(std::move(loaded), recorded.attributes, {});
}

}}  // namespace holdfast::v0_2
