// The common part of FusedAdam, FusedAdamW and Lamb: two moments and a step count per parameter, gathered
// into lists. Checks come before any change, and new states are kept only after the kernels have run.
//
// `Kernel` has Options, State, kName, check(options), and
//   run(list, options, group, maximize, on_device, rates, scale, found)   one kernel call for one list
// It may have
//   divisor(optimizer, grad_scale, whole)   replaces grad_scale as the number that run() divides by
//   kByTensor                               run() gets the WholeTensors as one argument more
//
// Threads: the training thread.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/optim/internal/adoption.h"
#include "holdfast/optim/internal/device_steps.h"
#include "holdfast/optim/internal/fused_body.h"
#include "holdfast/optim/internal/kernel_lists.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

template <class Options>
void check_adam(const Options& options, const char* name) {
  const auto require = [&](bool good, const char* what) {
    if (!good) throw UsageError(std::string(name) + ": " + what);
  };
  const auto [beta1, beta2] = options.betas();
  require(options.lr() >= 0, "the learning rate must not be negative");
  require(options.eps() >= 0, "eps must not be negative");
  require(beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1, "the betas must be at least 0 and below 1");
  require(options.weight_decay() >= 0, "the weight decay must not be negative");
}

// Work of the kernels that keep moments.
template <class Kernel>
struct FusedWork {
  using Options = typename Kernel::Options;
  using State = typename Kernel::State;
  KernelLists lists;
  DeviceRates rates;
  DeviceSteps device_steps;
  // One tensor per distinct step count: CPU kernels take the count from a tensor.
  std::vector<std::pair<std::int64_t, at::Tensor>> steps_here;
  std::size_t used_steps = 0;
  std::vector<State*> states;  // of the parameters with gradients, in order
  const WholeTensors* whole = nullptr;

  const at::Tensor& step_here(std::int64_t step) {
    // From the end, because neighbours mostly have the same count.
    for (std::size_t i = used_steps; i-- > 0;) {
      if (steps_here[i].first == step) return steps_here[i].second;
    }
    if (used_steps == steps_here.size()) steps_here.emplace_back(step, at::empty({}, at::kFloat));
    auto& made = steps_here[used_steps++];
    made.first = step;
    *made.second.mutable_data_ptr<float>() = static_cast<float>(step);
    return made.second;
  }

  template <class DecidesOn>
  void step(torch::optim::Optimizer& optimizer, bool maximize, const std::optional<at::Tensor>& grad_scale,
            const std::optional<at::Tensor>& found_inf, const DecidesOn& decides_on);

  // Fills `states`. Throws for tensors that the kernels cannot use, before anything changes.
  void collect_states(torch::optim::Optimizer& optimizer);

  void settle(torch::optim::Optimizer& optimizer) {
    device_steps.settle([&](void* parameter, const at::TensorImpl* slot, std::int64_t step) {
      const auto found = optimizer.state().find(parameter);
      if (found == optimizer.state().end()) return false;
      auto& state = static_cast<State&>(*found->second);
      if (state.exp_avg().unsafeGetTensorImpl() != slot) return false;
      state.step(step);
      return true;
    });
  }
};

template <class Kernel>
void FusedWork<Kernel>::collect_states(torch::optim::Optimizer& optimizer) {
  states.clear();
  auto& groups = optimizer.param_groups();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    [[maybe_unused]] const auto& options = options_of<Options>(groups[g], Kernel::kName);
    const auto& parameters = groups[g].params();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor& gradient = parameters[i].grad();
      if (!gradient.defined()) continue;
      require_usable(Kernel::kName, g, i, parameters[i], gradient);
      State* const state = states.emplace_back(state_at<State>(optimizer, parameters[i]));
      if (state == nullptr) continue;
      require_slots(Kernel::kName, parameters[i], {&state->exp_avg(), 1});
      require_slots(Kernel::kName, parameters[i], {&state->exp_avg_sq(), 1});
      if constexpr (requires { options.amsgrad(); }) {
        if (options.amsgrad()) require_slots(Kernel::kName, parameters[i], {&state->max_exp_avg_sq(), 1});
      }
    }
  }
}

template <class Kernel>
template <class DecidesOn>
void FusedWork<Kernel>::step(torch::optim::Optimizer& optimizer, bool maximize,
                             const std::optional<at::Tensor>& grad_scale,
                             const std::optional<at::Tensor>& found_inf, const DecidesOn& decides_on) {
  collect_states(optimizer);
  if (!decides_on(at::Device(at::kCPU)) && skipped_here(found_inf)) return;

  const at::NoGradGuard no_grad;
  // Below autograd: finish() tells it of all changes at once.
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  std::optional<at::Tensor> divisor = grad_scale;
  if constexpr (requires { Kernel::divisor(optimizer, grad_scale, whole); }) {
    divisor = Kernel::divisor(optimizer, grad_scale, whole);
  }
  std::vector<std::pair<void*, std::unique_ptr<State>>> made;
  std::vector<State*> counted;
  auto& groups = optimizer.param_groups();
  std::size_t seen = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto& options = static_cast<const Options&>(groups[g].options());
    // A share of a tensor may be long in one chunk and short in the next. Its norm needs both, and the ranks
    // one sum.
    lists.clear(whole == nullptr);
    used_steps = 0;
    for (const at::Tensor& parameter : groups[g].params()) {
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      State* state = states[seen++];
      if (state == nullptr) {
        state = made.emplace_back(parameter.unsafeGetTensorImpl(), std::make_unique<State>()).second.get();
      }
      std::array<at::Tensor, 3> slots;
      const auto slot = [&](at::Tensor& tensor) {
        if (!tensor.defined()) tensor = at::zeros_like(parameter);
        return tensor;
      };
      slots[0] = slot(state->exp_avg());
      slots[1] = slot(state->exp_avg_sq());
      if constexpr (requires { state->max_exp_avg_sq(); }) {
        if (options.amsgrad()) slots[2] = slot(state->max_exp_avg_sq());
      }
      const bool device = decides_on(parameter.device());
      if (!device) counted.push_back(state);
      lists.add(parameter, gradient, slots,
                device ? device_steps.of(parameter, slots[0], state->step()) : step_here(state->step() + 1),
                false, divisor.has_value());
    }
    for (KernelList& list : lists.lists()) {
      const bool device = decides_on(list.device);
      const auto scale = on_device(divisor, list.device);
      auto found = found_on_device(found_inf, list.device);
      if (!device && found) {
        if (found->item<float>() == 1) return lists.clear();
        found.reset();
      }
      const OneThread one_thread(list.small);
      if (device) at::_foreach_add_(list.steps, 1);
      if constexpr (requires { Kernel::kByTensor; }) {
        Kernel::run(list, options, g, maximize, device, rates, scale, found, whole);
      } else {
        Kernel::run(list, options, g, maximize, device, rates, scale, found);
      }
      // An update that the device skipped does not count.
      if (device && found) {
        at::_foreach_sub_(list.steps, std::vector<at::Tensor>(list.steps.size(), found->reshape({})));
      }
    }
    lists.finish();
    for (State* const state : counted) state->step(state->step() + 1);
    counted.clear();
    for (auto& [parameter, state] : made) optimizer.state()[parameter] = std::move(state);
    made.clear();
  }
}

}}}  // namespace holdfast::v0_2::internal
