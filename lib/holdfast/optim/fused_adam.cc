#include "holdfast/optim/fused_adam.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>

#include "holdfast/optim/internal/adam_work.h"

namespace holdfast { inline namespace v0_2 {
namespace internal {
namespace {

// Both kernels take the same arguments. `call` gets the rate as a device tensor or as a number.
template <class Call, class Options>
void with_rate(const KernelList& list, const Options& options, std::size_t group, bool on_device,
               DeviceRates& rates, const Call& call) {
  if (on_device) {
    // A number would become a constant of a captured graph, and every replay would use the old rate.
    call(rates.of(group, options.lr(), list.device));
  } else {
    call(options.lr());
  }
}

}  // namespace

template <class Which>
struct KernelOf : Which {
  using typename Which::Options;
  static void check(const Options& options) { check_adam(options, Which::kName); }
  static void run(KernelList& list, const Options& options, std::size_t group, bool maximize, bool on_device,
                  DeviceRates& rates, const std::optional<at::Tensor>& scale,
                  const std::optional<at::Tensor>& found) {
    const auto [beta1, beta2] = options.betas();
    // Captured under their own names, because clang 14 cannot capture structured bindings.
    with_rate(list, options, group, on_device, rates, [&, beta1 = beta1, beta2 = beta2](const auto& rate) {
      Which::call(list.parameters, list.gradients, list.slots[0], list.slots[1], list.slots[2], list.steps,
                  rate, beta1, beta2, options.weight_decay(), options.eps(), options.amsgrad(), maximize,
                  scale, found);
    });
  }
};

struct AdamCall {
  using Options = torch::optim::AdamOptions;
  using State = torch::optim::AdamParamState;
  static constexpr char kName[] = "FusedAdam";
  template <class... Arguments>
  static void call(const Arguments&... arguments) {
    at::_fused_adam_(arguments...);
  }
};

struct AdamWCall {
  using Options = torch::optim::AdamWOptions;
  using State = torch::optim::AdamWParamState;
  static constexpr char kName[] = "FusedAdamW";
  template <class... Arguments>
  static void call(const Arguments&... arguments) {
    at::_fused_adamw_(arguments...);
  }
};

struct AdamKernel : KernelOf<AdamCall> {};
struct AdamWKernel : KernelOf<AdamWCall> {};

}  // namespace internal

template class FusedOptimizer<torch::optim::Adam, torch::optim::AdamOptions, internal::AdamKernel>;
template class FusedOptimizer<torch::optim::AdamW, torch::optim::AdamWOptions, internal::AdamWKernel>;

}}  // namespace holdfast::v0_2
