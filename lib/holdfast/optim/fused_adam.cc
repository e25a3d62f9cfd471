#include "holdfast/optim/fused_adam.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>

#include <utility>

#include "holdfast/optim/internal/adam_work.h"

namespace holdfast::inline v1 {
namespace {

using internal::checked_adam;
using internal::KernelList;
using torch::optim::AdamOptions;
using torch::optim::AdamParamState;
using torch::optim::AdamWOptions;
using torch::optim::AdamWParamState;

// The two kernels take the same arguments; `call` gets the rate as the tensor or the number it is there.
template <class Call, class Options>
void with_rate(const KernelList& list, const Options& options, std::size_t group, bool on_device,
               internal::DeviceRates& rates, const Call& call) {
  if (on_device) {
    call(rates.of(group, options.lr(), list.device));
  } else {
    call(options.lr());
  }
}

struct AdamKind {
  using Options = AdamOptions;
  using State = AdamParamState;
  static constexpr char kName[] = "FusedAdam";
  static void run(KernelList& list, const Options& options, std::size_t group, bool maximize, bool on_device,
                  internal::DeviceRates& rates, const std::optional<at::Tensor>& scale,
                  const std::optional<at::Tensor>& found) {
    const auto [beta1, beta2] = options.betas();
    with_rate(list, options, group, on_device, rates, [&, beta1 = beta1, beta2 = beta2](const auto& rate) {
      at::_fused_adam_(list.parameters, list.gradients, list.slots[0], list.slots[1], list.slots[2],
                       list.steps, rate, beta1, beta2, options.weight_decay(), options.eps(),
                       options.amsgrad(), maximize, scale, found);
    });
  }
};

struct AdamWKind {
  using Options = AdamWOptions;
  using State = AdamWParamState;
  static constexpr char kName[] = "FusedAdamW";
  static void run(KernelList& list, const Options& options, std::size_t group, bool maximize, bool on_device,
                  internal::DeviceRates& rates, const std::optional<at::Tensor>& scale,
                  const std::optional<at::Tensor>& found) {
    const auto [beta1, beta2] = options.betas();
    with_rate(list, options, group, on_device, rates, [&, beta1 = beta1, beta2 = beta2](const auto& rate) {
      at::_fused_adamw_(list.parameters, list.gradients, list.slots[0], list.slots[1], list.slots[2],
                        list.steps, rate, beta1, beta2, options.weight_decay(), options.eps(),
                        options.amsgrad(), maximize, scale, found);
    });
  }
};

}  // namespace

// Two classes that differ in their names alone.
#define HOLDFAST_FUSED_ADAM(Fused, Torch, Kind)                                                   \
  Fused::Fused(std::vector<torch::optim::OptimizerParamGroup> groups, Kind::Options defaults,     \
               FusedOptions more)                                                                 \
      : Torch(groups, checked_adam(defaults, Kind::kName)),                                       \
        more_(more),                                                                              \
        work_(std::make_unique<internal::AdamWork>()) {                                           \
    for (auto& group : param_groups())                                                            \
      internal::check_adam(internal::options_of<Kind::Options>(group, Kind::kName), Kind::kName); \
  }                                                                                               \
  Fused::Fused(std::vector<at::Tensor> parameters, Kind::Options defaults, FusedOptions more)     \
      : Torch(std::move(parameters), checked_adam(defaults, Kind::kName)),                        \
        more_(more),                                                                              \
        work_(std::make_unique<internal::AdamWork>()) {}                                          \
  Fused::Fused(torch::optim::Torch& adopted, FusedOptions more)                                   \
      : Torch(adopted.param_groups(), static_cast<const Kind::Options&>(adopted.defaults())),     \
        more_(more),                                                                              \
        work_(std::make_unique<internal::AdamWork>()) {                                           \
    internal::take_slots(adopted, *this);                                                         \
  }                                                                                               \
  Fused::~Fused() = default;                                                                      \
  void Fused::give_back(torch::optim::Torch& to) { internal::give_all(*this, to, Kind::kName); }  \
  at::Tensor Fused::step(LossClosure closure) {                                                   \
    at::Tensor loss;                                                                              \
    if (closure) {                                                                                \
      const at::AutoGradMode with_gradients(true);                                                \
      loss = closure();                                                                           \
    }                                                                                             \
    step_scaled({}, {});                                                                          \
    return loss;                                                                                  \
  }                                                                                               \
  void Fused::step_scaled(const std::optional<at::Tensor>& grad_scale,                            \
                          const std::optional<at::Tensor>& found_inf) {                           \
    work_->step<Kind>(*this, more_.maximize, grad_scale, found_inf,                               \
                      [this](at::Device device) { return decides_on(device); });                  \
  }                                                                                               \
  void Fused::write_rates() { work_->write_rates(*this); }                                        \
  void Fused::settle() { work_->settle<Kind::State>(*this); }                                     \
  void Fused::save(torch::serialize::OutputArchive& archive) const {                              \
    const_cast<Fused&>(*this).settle();                                                           \
    Torch::save(archive);                                                                         \
  }

HOLDFAST_FUSED_ADAM(FusedAdam, Adam, AdamKind)
HOLDFAST_FUSED_ADAM(FusedAdamW, AdamW, AdamWKind)

}  // namespace holdfast::inline v1
