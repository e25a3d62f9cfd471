// Gradients at a step boundary. Most programs drop them before the next backward pass, and a checkpoint needs
// none. Those that zero them in place need to know which existed: an optimizer skips a parameter without a
// gradient, and one with zeros decays. Those that add up over several steps need the values.
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <string>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/state/internal/train_state_parts.h"
#include "holdfast/state/stager.h"
#include "holdfast/state/tensor_bytes.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using Fate = internal::GradientWatch::Fate;

// A record: the same boundary has it or not, by what the process has seen of the program so far.
constexpr char kPresent[] = "state.gradients";
// Each rank's own, because it may hold what is not summed over the ranks yet.
constexpr char kCarried[] = "state/gradient/";

// Calls visit(name, parameter, fate) for each parameter that something trains, once.
template <class Visit>
void for_each_trained(const internal::GradientWatch::Owners& owners, const ModuleInventory& modules,
                      const internal::GradientWatch& watch, const Visit& visit) {
  std::set<const void*> seen;
  for (std::size_t owner = 0; owner < owners.size(); ++owner) {
    for (const at::Tensor& parameter : owners[owner]) {
      const auto known = modules.parameters.find(parameter.unsafeGetTensorImpl());
      if (known == modules.parameters.end() || !seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
      visit(known->second.module + "/" + known->second.dotted, parameter, owner, watch.fate(owner));
    }
  }
}

}  // namespace

internal::GradientWatch::Owners TrainState::State::owners() const {
  internal::GradientWatch::Owners owners;
  for (const OptimizerState& part : optimizers) {
    auto& parameters = owners.emplace_back();
    for (const auto& group : part.optimizer().param_groups()) {
      parameters.insert(parameters.end(), group.params().begin(), group.params().end());
    }
  }
  for (const Part& part : components) owners.push_back(part.component->trained());
  return owners;
}

std::vector<std::string> TrainState::State::gradients_present(const List& list) const {
  std::vector<std::string> names;
  for_each_trained(owners(), list.modules, gradients,
                   [&](std::string name, const at::Tensor& parameter, std::size_t, Fate fate) {
                     if (fate != Fate::dropped && internal::dense_gradient(parameter.grad())) {
                       names.push_back(std::move(name));
                     }
                   });
  return names;
}

std::vector<SlotTensor> TrainState::State::carried_gradients(const List& list) const {
  std::vector<SlotTensor> carried;
  if (!gradients.carries()) return carried;
  for_each_trained(
      owners(), list.modules, gradients,
      [&](const std::string& name, const at::Tensor& parameter, std::size_t, Fate fate) {
        if (fate != Fate::carried) return;
        const at::Tensor& gradient = parameter.grad();
        if (gradient.defined() && !internal::dense_gradient(gradient)) {
          throw Error("the gradient of " + name +
                      " is sparse and outlives after_step(): a checkpoint cannot hold it. Call zero_grad() "
                      "after the optimizer's step, or make it dense (for an embedding, sparse(false))");
        }
        // Zeros for one that does not exist: all files of a run have the same tensors.
        carried.push_back({kCarried + name, gradient.defined() ? gradient : at::zeros_like(parameter)});
      });
  return carried;
}

std::vector<std::pair<at::Tensor, at::Tensor>> TrainState::State::recorded_gradients(
    const List& list, const Snapshot& snapshot, const std::vector<OptimizerState::Loaded>& slots) {
  std::vector<std::pair<at::Tensor, at::Tensor>> recorded;
  std::set<std::string> present;
  if (snapshot.attributes.has(kPresent)) {
    const auto& names = snapshot.attributes.get_strings(kPresent);
    present.insert(names.begin(), names.end());
  }
  Stager copies;
  std::set<std::size_t> carrying;
  auto owned = owners();
  for (std::size_t i = 0; i < slots.size(); ++i) {
    for (const auto& group : slots[i].appended) owned[i].insert(owned[i].end(), group.begin(), group.end());
  }
  const NewShapes reshaped = new_shapes(list.modules, snapshot.layout->tensors());
  for_each_trained(owned, list.modules, gradients,
                   [&](const std::string& name, const at::Tensor& parameter, std::size_t owner, Fate) {
                     const auto bytes = snapshot.find(kCarried + name);
                     if (bytes) carrying.insert(owner);
                     // A program may have made its gradients itself, or hold them as state.value().
                     const auto other = reshaped.find(parameter.unsafeGetTensorImpl());
                     const bool here = parameter.grad().defined() && other == reshaped.end();
                     if (!present.contains(name) || (!bytes && here)) return;
                     at::Tensor gradient = other == reshaped.end()
                                               ? at::zeros_like(parameter)
                                               : at::zeros(other->second, parameter.options());
                     if (bytes && bytes->size() != gradient.nbytes()) {
                       throw RefusedError("'" + (kCarried + name) + "' has another size than its parameter");
                     }
                     if (bytes) copies.add(*bytes, gradient);
                     recorded.emplace_back(parameter, std::move(gradient));
                   });
  copies.run();
  for (const std::size_t owner : carrying) gradients.carry(owner);
  return recorded;
}

void TrainState::keep_gradients(const std::string& optimizer) {
  State& state = *state_;
  for (std::size_t i = 0; i < state.optimizers.size(); ++i) {
    if (state.optimizers[i].name() == optimizer) return state.gradients.carry(i);
  }
  for (std::size_t i = 0; i < state.components.size(); ++i) {
    const State::Part& part = state.components[i];
    if (part.name == optimizer && !part.component->trained().empty()) {
      return state.gradients.carry(state.optimizers.size() + i);
    }
  }
  throw UsageError("keep_gradients(\"" + optimizer +
                   "\"): no optimizer of that name was added; call it after state.add()");
}

void TrainState::State::look_at_gradients() {
  const auto now = owners();
  std::vector<Fate> before;
  for (std::size_t i = 0; i < now.size(); ++i) before.push_back(gradients.fate(i));
  gradients.look(now);
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (gradients.fate(i) != Fate::carried || before[i] == Fate::carried) continue;
    std::uint64_t bytes = 0;
    for (const at::Tensor& parameter : now[i]) bytes += parameter.nbytes();
    const std::string& name =
        i < optimizers.size() ? optimizers[i].name() : components[i - optimizers.size()].name;
    log_warning(
        "gradients of '{}' outlive after_step(), and a backward pass adds to them: from step {} on, "
        "checkpoints hold them ({} bytes more). To spare that, call its zero_grad() before the step's first "
        "backward pass or after its own step()",
        name, step, bytes);
  }
}

}}  // namespace holdfast::v0_2
