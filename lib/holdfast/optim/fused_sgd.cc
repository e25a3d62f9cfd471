#include "holdfast/optim/fused_sgd.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <array>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/optim/internal/adoption.h"
#include "holdfast/optim/internal/fused_body.h"
#include "holdfast/optim/internal/kernel_lists.h"
#include "holdfast/optim/internal/tails.h"

namespace holdfast { inline namespace v0_2 {

using torch::optim::SGDOptions;
using torch::optim::SGDParamState;

namespace internal {

struct SgdKernel {
  using Options = SGDOptions;
  using State = SGDParamState;
  static constexpr char kName[] = "FusedSgd";

  static void check(const SGDOptions& options) {
    const auto require = [](bool good, const char* what) {
      if (!good) throw UsageError(std::string(kName) + ": " + what);
    };
    require(options.lr() >= 0, "the learning rate must not be negative");
    require(options.momentum() >= 0, "the momentum must not be negative");
    require(options.weight_decay() >= 0, "the weight decay must not be negative");
    require(!options.nesterov() || (options.momentum() > 0 && options.dampening() == 0),
            "Nesterov's momentum needs a momentum, and no dampening");
  }
};

}  // namespace internal

namespace {

using internal::KernelList;
using internal::SgdKernel;

// LibTorch 2.11's CPU kernel for 16-bit numbers reads whole vectors but never writes them back. So it is
// tried once.
bool updates(at::ScalarType type) {
  const at::Tensor parameter = at::zeros({64}, type);
  // With a learning rate of 1, no momentum and a gradient of 1, the parameter must become -1.
  at::_fused_sgd_({parameter}, {at::ones({64}, type)}, {}, 0, 0, 1.0, 0, false, false, false);
  return parameter.eq(-1).all().item<bool>();
}
void require_kernel(const at::Tensor& parameter) {
  if (!parameter.device().is_cpu()) return;
  const at::ScalarType type = parameter.scalar_type();
  // Only the kernels for 16-bit types have that fault.
  if (type != at::kHalf && type != at::kBFloat16) return;
  static const bool half = updates(at::kHalf), bfloat = updates(at::kBFloat16);
  if (type == at::kHalf ? half : bfloat) return;
  throw UsageError(std::string(SgdKernel::kName) + ": LibTorch's fused kernel for " + at::toString(type) +
                   " parameters on a CPU loses updates in this release: keep the parameters in float (and "
                   "compute under autocast), or use torch::optim::SGD");
}

}  // namespace

namespace internal {

template <>
struct FusedWork<SgdKernel> {
  KernelLists lists;
  DeviceRates rates;
  Tails tails;
  std::vector<SGDParamState*> states;  // of the parameters that have gradients, in order
  std::vector<std::pair<const at::TensorImpl*, std::unique_ptr<SGDParamState>>> made;

  // Fills `states`. Throws for tensors that the kernels cannot use, before anything changes.
  void collect_states(torch::optim::Optimizer& optimizer);
  template <class DecidesOn>
  void step(torch::optim::Optimizer& optimizer, bool maximize, const std::optional<at::Tensor>& grad_scale,
            const std::optional<at::Tensor>& found_inf, const DecidesOn& decides_on);
  void settle(torch::optim::Optimizer& /*optimizer*/) {}
};

void FusedWork<SgdKernel>::collect_states(torch::optim::Optimizer& optimizer) {
  states.clear();
  auto& groups = optimizer.param_groups();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto& options = options_of<SGDOptions>(groups[g], SgdKernel::kName);
    const auto& parameters = groups[g].params();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor& gradient = parameters[i].grad();
      if (!gradient.defined()) continue;
      require_usable(SgdKernel::kName, g, i, parameters[i], gradient);
      require_kernel(parameters[i]);
      auto* const state =
          options.momentum() != 0 ? state_at<SGDParamState>(optimizer, parameters[i]) : nullptr;
      if (state != nullptr) require_slots(SgdKernel::kName, parameters[i], {&state->momentum_buffer(), 1});
      states.push_back(state);
    }
  }
}

template <class DecidesOn>
void FusedWork<SgdKernel>::step(torch::optim::Optimizer& optimizer, bool maximize,
                                const std::optional<at::Tensor>& grad_scale,
                                const std::optional<at::Tensor>& found_inf, const DecidesOn& decides_on) {
  collect_states(optimizer);
  // If found_inf is in host memory, the answer is known here, and no kernel has to run.
  if (!decides_on(at::Device(at::kCPU)) && skipped_here(found_inf)) return;

  const at::NoGradGuard no_grad;
  // Skips autograd's dispatch; lists.finish() bumps the tensors' versions instead.
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  auto& groups = optimizer.param_groups();
  std::size_t seen = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto& options = static_cast<const SGDOptions&>(groups[g].options());
    lists.clear();
    made.clear();
    for (const at::Tensor& parameter : groups[g].params()) {
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      auto* const state = states[seen++];
      const bool device = decides_on(parameter.device());
      at::Tensor momentum;
      bool fresh = false;
      if (options.momentum() != 0) {
        if (state != nullptr) momentum = state->momentum_buffer();
        if (!momentum.defined()) {
          // On a device zeros work as a new slot: momentum * 0 + gradient is the gradient. So one kernel
          // serves old and new slots.
          fresh = !device || options.dampening() != 0;
          // The CPU kernel fills a new slot itself, so its memory need not be cleared.
          momentum = device ? at::zeros_like(parameter) : at::empty_like(parameter);
          auto fresh_state = std::make_unique<SGDParamState>();
          fresh_state->momentum_buffer(momentum);
          // Kept aside: the state appears in the optimizer only when the kernel has run.
          made.emplace_back(parameter.unsafeGetTensorImpl(), std::move(fresh_state));
        }
      }
      lists.add(parameter, gradient, {&momentum, 1}, {}, fresh, grad_scale.has_value());
    }
    for (KernelList& list : lists.lists()) {
      const bool device = decides_on(list.device);
      const auto scale = on_device(grad_scale, list.device);
      auto found = found_on_device(found_inf, list.device);
      if (found && (!device || list.fresh)) {
        if (found->item<float>() == 1) {
          // The kernel has not filled new slots, so they are dropped. Kernels for other lists see found_inf
          // themselves.
          if (list.fresh) made.clear();
          continue;
        }
        found.reset();
      }
      // Gives the last elements of each tensor torch::optim's bits (tails.h).
      if (!device) tails.add(list);
      const OneThread one_thread(list.small);
      if (device) {
        at::_fused_sgd_(list.parameters, list.gradients, list.slots[0], options.weight_decay(),
                        options.momentum(), rates.of(g, options.lr(), list.device), options.dampening(),
                        options.nesterov(), maximize, list.fresh, scale, found);
      } else {
        at::_fused_sgd_(list.parameters, list.gradients, list.slots[0], options.weight_decay(),
                        options.momentum(), options.lr(), options.dampening(), options.nesterov(), maximize,
                        list.fresh, scale, found);
        tails.put_back(list);
      }
    }
    lists.finish();
    for (auto& [parameter, state] : made) {
      optimizer.state()[const_cast<at::TensorImpl*>(parameter)] = std::move(state);
    }
    made.clear();
  }
}

}  // namespace internal

template class FusedOptimizer<torch::optim::SGD, SGDOptions, SgdKernel>;

}}  // namespace holdfast::v0_2
