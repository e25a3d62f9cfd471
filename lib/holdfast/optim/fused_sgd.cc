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
#include "holdfast/optim/internal/kernel_lists.h"
#include "holdfast/optim/internal/tails.h"

namespace holdfast::inline v1 {
namespace {

using internal::KernelList;
using torch::optim::SGDOptions;
using torch::optim::SGDParamState;
constexpr char kName[] = "FusedSgd";

void check(const SGDOptions& options) {
  const auto require = [](bool good, const char* what) {
    if (!good) throw UsageError(std::string(kName) + ": " + what);
  };
  require(options.lr() >= 0, "the learning rate must not be negative");
  require(options.momentum() >= 0, "the momentum must not be negative");
  require(options.weight_decay() >= 0, "the weight decay must not be negative");
  require(!options.nesterov() || (options.momentum() > 0 && options.dampening() == 0),
          "Nesterov's momentum needs a momentum, and no dampening");
}
SGDOptions checked(SGDOptions options) {
  check(options);
  return options;
}

// LibTorch 2.11's kernel for 16-bit numbers on a CPU reads whole vectors and never writes them.
bool updates(at::ScalarType type) {
  const at::Tensor parameter = at::zeros({64}, type);
  at::_fused_sgd_({parameter}, {at::ones({64}, type)}, {}, 0, 0, 1.0, 0, false, false, false);
  return parameter.eq(-1).all().item<bool>();
}
void require_kernel(const at::Tensor& parameter) {
  if (!parameter.device().is_cpu()) return;
  const at::ScalarType type = parameter.scalar_type();
  if (type != at::kHalf && type != at::kBFloat16) return;
  static const bool half = updates(at::kHalf), bfloat = updates(at::kBFloat16);
  if (type == at::kHalf ? half : bfloat) return;
  throw UsageError(std::string(kName) + ": LibTorch's fused kernel for " + at::toString(type) +
                   " parameters on a CPU loses updates in this release: keep the parameters in float (and "
                   "compute under autocast), or use torch::optim::SGD");
}

}  // namespace

struct FusedSgd::Work {
  internal::KernelLists lists;
  internal::DeviceRates rates;
  internal::Tails tails;
  std::vector<std::pair<const at::TensorImpl*, std::unique_ptr<SGDParamState>>> made;
};

FusedSgd::FusedSgd(std::vector<torch::optim::OptimizerParamGroup> groups, SGDOptions defaults,
                   FusedOptions more)
    : SGD(groups, checked(defaults)), more_(more), work_(std::make_unique<Work>()) {
  for (auto& group : param_groups()) check(internal::options_of<SGDOptions>(group, kName));
}
FusedSgd::FusedSgd(std::vector<at::Tensor> parameters, SGDOptions defaults, FusedOptions more)
    : SGD(std::move(parameters), checked(defaults)), more_(more), work_(std::make_unique<Work>()) {}
FusedSgd::FusedSgd(torch::optim::SGD& adopted, FusedOptions more)
    : SGD(adopted.param_groups(), static_cast<const SGDOptions&>(adopted.defaults())),
      more_(more),
      work_(std::make_unique<Work>()) {
  internal::take_slots(adopted, *this);
}
FusedSgd::~FusedSgd() = default;

void FusedSgd::give_back(torch::optim::SGD& to) { internal::give_all(*this, to, kName); }

at::Tensor FusedSgd::step(LossClosure closure) {
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  step_scaled({}, {});
  return loss;
}

void FusedSgd::write_rates() {
  const at::NoGradGuard no_grad;
  work_->rates.write([&](std::size_t group) { return param_groups()[group].options().get_lr(); });
}

void FusedSgd::step_scaled(const std::optional<at::Tensor>& grad_scale,
                           const std::optional<at::Tensor>& found_inf) {
  internal::require_scalar(grad_scale, "grad_scale");
  internal::require_scalar(found_inf, "found_inf");
  auto& groups = param_groups();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    static_cast<void>(internal::options_of<SGDOptions>(groups[g], kName));
    const auto& parameters = groups[g].params();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor& gradient = parameters[i].grad();
      if (!gradient.defined()) continue;
      internal::require_usable(kName, g, i, parameters[i], gradient);
      require_kernel(parameters[i]);
    }
  }
  if (!decides_on(at::kCPU) && internal::skipped_here(found_inf)) return;

  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  Work& work = *work_;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto& options = static_cast<const SGDOptions&>(groups[g].options());
    work.lists.clear();
    work.made.clear();
    for (const at::Tensor& parameter : groups[g].params()) {
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      const bool device = decides_on(parameter.device());
      at::Tensor momentum;
      bool fresh = false;
      if (options.momentum() != 0) {
        auto* const state = internal::state_at<SGDParamState>(*this, parameter);
        if (state != nullptr) momentum = state->momentum_buffer();
        if (!momentum.defined()) {
          // Zeros times momentum plus the gradient is the gradient: on a device one kernel does for both.
          fresh = !device || options.dampening() != 0;
          momentum = device ? at::zeros_like(parameter) : at::empty_like(parameter);
          auto made = std::make_unique<SGDParamState>();
          made->momentum_buffer(momentum);
          work.made.emplace_back(parameter.unsafeGetTensorImpl(), std::move(made));
        }
      }
      work.lists.add(parameter, gradient, {&momentum, 1}, {}, fresh, grad_scale.has_value());
    }
    for (KernelList& list : work.lists.lists()) {
      const bool device = decides_on(list.device);
      const auto scale = internal::on_device(grad_scale, list.device);
      auto found = internal::on_device(found_inf, list.device);
      if (found && (!device || list.fresh)) {
        if (found->item<float>() == 1) {
          // What is new has not been computed; the rest is left to the kernels, which skip as well.
          if (list.fresh) work.made.clear();
          continue;
        }
        found.reset();
      }
      if (!device) work.tails.add(list);
      const internal::Alone alone(list.small);
      if (device) {
        at::_fused_sgd_(list.parameters, list.gradients, list.slots[0], options.weight_decay(),
                        options.momentum(), work.rates.of(g, options.lr(), list.device), options.dampening(),
                        options.nesterov(), more_.maximize, list.fresh, scale, found);
      } else {
        at::_fused_sgd_(list.parameters, list.gradients, list.slots[0], options.weight_decay(),
                        options.momentum(), options.lr(), options.dampening(), options.nesterov(),
                        more_.maximize, list.fresh, scale, found);
        work.tails.put_back(list);
      }
    }
    work.lists.finish();
    for (auto& [parameter, made] : work.made) {
      state()[const_cast<at::TensorImpl*>(parameter)] = std::move(made);
    }
    work.made.clear();
  }
}

}  // namespace holdfast::inline v1
