#include "holdfast/optim/fused_adam.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>

#include "holdfast/optim/internal/adam_work.h"

namespace holdfast::inline v1 {
namespace internal {
namespace {

// The two kernels take the same arguments; `call` gets the rate as the tensor or the number it is there.
template <class Call, class Options>
void with_rate(const KernelList& list, const Options& options, std::size_t group, bool on_device,
               DeviceRates& rates, const Call& call) {
  if (on_device) {
    call(rates.of(group, options.lr(), list.device));
  } else {
    call(options.lr());
  }
}

}  // namespace

struct AdamKernel {
  using Options = torch::optim::AdamOptions;
  using State = torch::optim::AdamParamState;
  static constexpr char kName[] = "FusedAdam";
  static constexpr OwnOptimizer::Kind kKind = OwnOptimizer::Kind::adam;
  static void check(const Options& options) { check_adam(options, kName); }
  static void run(KernelList& list, const Options& options, std::size_t group, bool maximize, bool on_device,
                  DeviceRates& rates, const std::optional<at::Tensor>& scale,
                  const std::optional<at::Tensor>& found) {
    const auto [beta1, beta2] = options.betas();
    with_rate(list, options, group, on_device, rates, [&, beta1 = beta1, beta2 = beta2](const auto& rate) {
      at::_fused_adam_(list.parameters, list.gradients, list.slots[0], list.slots[1], list.slots[2],
                       list.steps, rate, beta1, beta2, options.weight_decay(), options.eps(),
                       options.amsgrad(), maximize, scale, found);
    });
  }
};

struct AdamWKernel {
  using Options = torch::optim::AdamWOptions;
  using State = torch::optim::AdamWParamState;
  static constexpr char kName[] = "FusedAdamW";
  static constexpr OwnOptimizer::Kind kKind = OwnOptimizer::Kind::adamw;
  static void check(const Options& options) { check_adam(options, kName); }
  static void run(KernelList& list, const Options& options, std::size_t group, bool maximize, bool on_device,
                  DeviceRates& rates, const std::optional<at::Tensor>& scale,
                  const std::optional<at::Tensor>& found) {
    const auto [beta1, beta2] = options.betas();
    with_rate(list, options, group, on_device, rates, [&, beta1 = beta1, beta2 = beta2](const auto& rate) {
      at::_fused_adamw_(list.parameters, list.gradients, list.slots[0], list.slots[1], list.slots[2],
                        list.steps, rate, beta1, beta2, options.weight_decay(), options.eps(),
                        options.amsgrad(), maximize, scale, found);
    });
  }
};

}  // namespace internal

template class FusedOptimizer<torch::optim::Adam, torch::optim::AdamOptions, internal::AdamKernel>;
template class FusedOptimizer<torch::optim::AdamW, torch::optim::AdamWOptions, internal::AdamWKernel>;

}  // namespace holdfast::inline v1
