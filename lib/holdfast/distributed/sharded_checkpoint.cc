// Gathers a ShardedOptimizer's slots into whole tensors for a checkpoint, and cuts loaded ones again.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/distributed/internal/sharded_parts.h"
#include "holdfast/distributed/sharded_optimizer.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr char kName[] = "sharded";

std::string prefix_of(std::size_t group) { return "group." + std::to_string(group) + "."; }

// The recorded value as an option of the type of `field`. RefusedError if there is none of that type.
AttributeValue read(const StateReader& in, const std::string& name, const OptionField& field) {
  if (std::holds_alternative<double*>(field)) return in.get_double(name);
  if (std::holds_alternative<bool*>(field)) return in.get_bool(name);
  if (std::holds_alternative<std::int64_t*>(field)) return in.get_int(name);
  auto values = in.get_doubles(name);
  if (values.size() != 2) throw RefusedError("attribute '" + name + "' is not two numbers");
  return values;
}

}  // namespace

void ShardedOptimizer::Parts::gather_slots() {
  const at::NoGradGuard no_grad;
  // A fused optimizer's step counts may still lie on the device.
  if (auto* const own = dynamic_cast<OwnOptimizer*>(optimizer)) own->settle();
  // Gathered at this boundary already. All ranks agree on that, so none waits in a collective.
  if (!whole.empty()) return;
  std::map<std::string, at::Tensor> gathered;
  for (const Group& of : groups) {
    for (const Part& part : of.chunks) {
      for (const auto& [slot, share] : slots_of(part.share)) {
        const at::Tensor all = all_of("the optimizer's slots", part, share);
        for (const Piece& piece : part.chunk.pieces) {
          const at::Tensor& parameter = of.parameters[piece.parameter];
          at::Tensor& tensor = gathered[slot + "/" + of.names[piece.parameter]];
          // In host memory: whole slots of all parameters would not fit on the device, which is why they are
          // sharded.
          if (!tensor.defined()) {
            tensor = at::empty_strided(parameter.sizes(), parameter.strides(),
                                       at::TensorOptions(parameter.scalar_type()));
          }
          dense_view(tensor).narrow(0, piece.from, piece.count).copy_(all.narrow(0, piece.at, piece.count));
        }
      }
    }
  }
  whole = std::move(gathered);
}

void ShardedOptimizer::bring_together() { parts_->gather_slots(); }

std::vector<at::Tensor> ShardedOptimizer::trained() const {
  std::vector<at::Tensor> all;
  for (const Parts::Group& group : parts_->groups) {
    all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  }
  return all;
}

// If bring_together() has run at this step boundary, this call finds the slots gathered, and no rank waits
// for another.
void ShardedOptimizer::save(StateWriter& out) const {
  parts_->gather_slots();
  out.put("type", std::string(parts_->kind.name));
  const auto* const own = dynamic_cast<const OwnOptimizer*>(parts_->optimizer);
  if (own != nullptr && own->maximizes()) out.option("maximize", true);
  out.environment("kernels", std::string(own != nullptr ? "fused" : "torch::optim"));
  auto& groups = parts_->optimizer->param_groups();
  for (std::size_t g = 0; g < parts_->groups.size(); ++g) {
    const Parts::Group& of = parts_->groups[g];
    const std::string prefix = prefix_of(g);
    out.put(prefix + "parameters", of.names);
    for (const auto& [name, chosen] : of.chosen) out.option(prefix + name, chosen.value);
    for (const auto& [name, now] : parts_->options_now(groups[g].options())) {
      if (!same_bits(now.value, of.chosen.find(name)->value)) out.put(prefix + "now." + name, now.value);
    }
    // All parameters of a group have the same count, because a ShardedOptimizer updates all.
    out.put(prefix + "steps", std::vector<std::int64_t>(of.parameters.size(), parts_->updates(of)));
  }
  for (const auto& [name, tensor] : parts_->whole) out.put_tensor(name, tensor);
}

std::int64_t ShardedOptimizer::Parts::recorded_updates(const StateReader& in, std::size_t g) const {
  const Group& of = groups[g];
  const std::string prefix = prefix_of(g);
  if (in.get_strings(prefix + "parameters") != of.names) {
    throw RefusedError("group " + std::to_string(g) +
                       " of the optimizer has other parameters here than in the checkpoint");
  }
  const auto steps = in.get_ints(prefix + "steps");
  if (steps.size() != of.names.size()) {
    throw RefusedError("attribute '" + prefix + "steps' has another length than the group");
  }
  for (const std::int64_t step : steps) {
    if (step == steps.front()) continue;
    throw RefusedError("parameters of group " + std::to_string(g) +
                       " were updated unequally often: a ShardedOptimizer updates all");
  }
  return steps.empty() ? -1 : steps.front();
}

bool ShardedOptimizer::Parts::has_slot(const StateReader& in, const char* slot, std::size_t g) const {
  std::size_t there = 0;
  for (const std::string& name : groups[g].names) there += in.has_tensor(slot + ("/" + name)) ? 1U : 0U;
  // Slots come for all parameters of a group or for none.
  if (there != 0 && there != groups[g].names.size()) {
    throw RefusedError("some parameters of group " + std::to_string(g) + " have a " + slot +
                       " in the checkpoint, others not: a ShardedOptimizer updates all");
  }
  return there != 0;
}

std::vector<at::Tensor> ShardedOptimizer::Parts::wholes_of(const StateReader& in, const char* slot,
                                                           const Group& of) {
  std::vector<at::Tensor> wholes;
  for (std::size_t i = 0; i < of.parameters.size(); ++i) {
    const at::Tensor& like = of.parameters[i];
    const std::string name = slot + ("/" + of.names[i]);
    const at::Tensor tensor = in.get_tensor(name);
    if (tensor.sizes() != like.sizes() || tensor.scalar_type() != like.scalar_type()) {
      throw RefusedError("'" + name + "' of the optimizer has another shape or type than its parameter");
    }
    // In the layout of the parameter, because shares are cut from memory and not from dimensions.
    wholes.push_back(laid_out_as(like, tensor));
  }
  return wholes;
}

void ShardedOptimizer::load(const StateReader& in) {
  const at::NoGradGuard no_grad;
  Parts& parts = *parts_;
  const OptimizerKind& kind = parts.kind;
  auto& groups = parts.optimizer->param_groups();
  if (in.get_string("type") != kind.name) {
    throw RefusedError("the optimizer is " + std::string(kind.name) + " here and " + in.get_string("type") +
                       " in the checkpoint");
  }
  // Built aside, so that a refused checkpoint leaves the optimizer as it was.
  std::vector<std::pair<void*, std::unique_ptr<torch::optim::OptimizerParamState>>> states;
  std::vector<Attributes> options;
  std::map<std::string, at::Tensor> whole;
  for (std::size_t g = 0; g < parts.groups.size(); ++g) {
    const Parts::Group& of = parts.groups[g];
    options.emplace_back();
    // The recorded options, as a schedule had changed them. If this program has chosen another value, which
    // an override must have allowed, its value stays.
    internal::visit_options(
        kind, groups[g].options(), kName, [&](const char* name, const OptionField& field) {
          const AttributeValue& chosen = of.chosen.find(name)->value;
          const std::string prefix = prefix_of(g);
          const bool same = same_bits(read(in, prefix + name, field), chosen);
          const bool changed = same && in.has(prefix + "now." + name);
          options.back().set(name, changed ? read(in, prefix + "now." + name, field) : chosen);
        });
    const std::int64_t updates = parts.recorded_updates(in, g);
    if (updates < 0) continue;
    const std::size_t first = states.size();
    for (const Parts::Part& part : of.chunks) {
      states.emplace_back(part.share.unsafeGetTensorImpl(), kind.make_state());
      kind.set_step(*states.back().second, updates);
    }
    // An empty state, only to learn the names of the slots.
    kind.slots(*kind.make_state(), [&](const char* slot, at::Tensor&) {
      if (!parts.has_slot(in, slot, g)) return;
      const std::vector<at::Tensor> wholes = Parts::wholes_of(in, slot, of);
      for (std::size_t i = 0; i < wholes.size(); ++i) whole[slot + ("/" + of.names[i])] = wholes[i];
      for (std::size_t c = 0; c < of.chunks.size(); ++c) {
        const Parts::Part& part = of.chunks[c];
        kind.slots(*states[first + c].second, [&](const char* other, at::Tensor& share) {
          if (std::string_view(other) != slot) return;
          // Zeros, because the padding behind the last piece takes part in the kernels.
          share = at::zeros({part.chunk.share}, part.chunk.options);
          Parts::take(wholes, part.own, share);
        });
      }
    });
  }
  // From here on nothing can fail.
  for (Parts::Group& of : parts.groups) of.lie_now();
  parts.whole = std::move(whole);  // so that a save before the next update needs no other rank
  parts.optimizer->state().clear();
  for (auto& [share, state] : states) parts.optimizer->state()[share] = std::move(state);
  for (std::size_t g = 0; g < options.size(); ++g) {
    internal::visit_options(kind, groups[g].options(), kName,
                            [&](const char* name, const OptionField& field) {
                              internal::from_value(options[g].find(name)->value, field);
                            });
  }
}

}}  // namespace holdfast::v0_2
