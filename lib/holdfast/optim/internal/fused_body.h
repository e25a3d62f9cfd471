// The members of FusedOptimizer, for the sources that instantiate it. Such a source first defines
//
//   struct XKernel { using Options, State; static constexpr char kName[];
//                    static const OptimizerKind& kind();  unless `Torch` is a class of torch::optim
//                    static void check(const Options&); … };
//   template <> struct FusedWork<XKernel> (or adam_work.h's): step(), settle(), `rates`
//
// Threads: the training thread.
#pragma once

#include <ATen/core/grad_mode.h>
#include <torch/serialize/output-archive.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/optim/fused_optimizer.h"
#include "holdfast/optim/internal/adoption.h"
#include "holdfast/optim/internal/kernel_lists.h"
#include "holdfast/state/optimizer_fields.h"
#include "holdfast/state/torch_compat.h"

namespace holdfast { inline namespace v0_2 {
namespace internal {

template <class Kernel, class Options>
Options checked(Options options) {
  Kernel::check(options);
  return options;
}
// The default options in the form that the base class takes.
template <class Torch, class Options>
auto defaults_for(Options options) {
  if constexpr (std::is_same_v<Torch, torch::optim::Optimizer>) {
    return std::make_unique<Options>(std::move(options));
  } else {
    return options;
  }
}
inline std::vector<torch::optim::OptimizerParamGroup> one_group(std::vector<at::Tensor> parameters) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::move(parameters));
  return groups;
}

}  // namespace internal

template <class Torch, class Options, class Kernel>
FusedOptimizer<Torch, Options, Kernel>::FusedOptimizer(std::vector<torch::optim::OptimizerParamGroup> groups,
                                                       Options defaults, FusedOptions more)
    : Torch(groups, internal::defaults_for<Torch>(internal::checked<Kernel>(std::move(defaults)))),
      more_(more),
      work_(std::make_unique<internal::FusedWork<Kernel>>()) {
  internal::require_each_once(*this, Kernel::kName);
  compat::keep_options(*this, groups);
  for (auto& group : this->param_groups()) Kernel::check(internal::options_of<Options>(group, Kernel::kName));
}

template <class Torch, class Options, class Kernel>
FusedOptimizer<Torch, Options, Kernel>::FusedOptimizer(std::vector<at::Tensor> parameters, Options defaults,
                                                       FusedOptions more)
    : FusedOptimizer(internal::one_group(std::move(parameters)), std::move(defaults), more) {}

template <class Torch, class Options, class Kernel>
FusedOptimizer<Torch, Options, Kernel>::FusedOptimizer(Torch& adopted, FusedOptions more) requires(kAdopts)
    : Torch(adopted.param_groups(), static_cast<const Options&>(adopted.defaults())),
      more_(more),
      work_(std::make_unique<internal::FusedWork<Kernel>>()) {
  internal::require_each_once(*this, Kernel::kName);
  internal::require_slots_here(adopted, Kernel::kName);
  if (!more.maximize || !adopted.state().empty()) internal::require_same_way(adopted, *this, Kernel::kName);
  compat::keep_options(*this, adopted.param_groups());
  internal::take_slots(adopted, *this);
  internal::mark_slots_away<Options>(adopted);
}

template <class Torch, class Options, class Kernel>
FusedOptimizer<Torch, Options, Kernel>::~FusedOptimizer() = default;

template <class Torch, class Options, class Kernel>
void FusedOptimizer<Torch, Options, Kernel>::give_back(Torch& to) requires(kAdopts) {
  internal::give_all(*this, to, Kernel::kName);
  internal::mark_slots_away<Options>(*this);
}

template <class Torch, class Options, class Kernel>
void FusedOptimizer<Torch, Options, Kernel>::add_param_group(const torch::optim::OptimizerParamGroup& group) {
  Torch::add_param_group(group);
  compat::keep_options(*this, {group});
  // The base class has added the group already.
  try {
    internal::require_each_once(*this, Kernel::kName);
    Kernel::check(internal::options_of<Options>(this->param_groups().back(), Kernel::kName));
  } catch (...) {
    this->param_groups().pop_back();
    throw;
  }
}

template <class Torch, class Options, class Kernel>
at::Tensor FusedOptimizer<Torch, Options, Kernel>::step(torch::optim::Optimizer::LossClosure closure) {
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  step_scaled({}, {});
  return loss;
}

template <class Torch, class Options, class Kernel>
void FusedOptimizer<Torch, Options, Kernel>::save(torch::serialize::OutputArchive& archive) const {
  // torch's save() is const, and the counts on the device must be fetched first.
  const_cast<FusedOptimizer&>(*this).settle();
  Torch::save(archive);
}

template <class Torch, class Options, class Kernel>
void FusedOptimizer<Torch, Options, Kernel>::step_scaled(const std::optional<at::Tensor>& grad_scale,
                                                         const std::optional<at::Tensor>& found_inf) {
  internal::require_slots_here(*this, Kernel::kName);
  internal::require_scalar(grad_scale, "grad_scale");
  internal::require_scalar(found_inf, "found_inf");
  work_->step(*this, more_.maximize, grad_scale, found_inf,
              [this](at::Device device) { return decides_on(device); });
}

template <class Torch, class Options, class Kernel>
void FusedOptimizer<Torch, Options, Kernel>::write_rates() {
  const at::NoGradGuard no_grad;
  work_->rates.write([this](std::size_t group) { return this->param_groups()[group].options().get_lr(); });
}

template <class Torch, class Options, class Kernel>
const OptimizerKind& FusedOptimizer<Torch, Options, Kernel>::kind() const {
  if constexpr (kAdopts) {
    return *torch_kind(typeid(Torch));
  } else {
    return Kernel::kind();
  }
}

template <class Torch, class Options, class Kernel>
void FusedOptimizer<Torch, Options, Kernel>::settle() {
  work_->settle(*this);
}

template <class Torch, class Options, class Kernel>
void FusedOptimizer<Torch, Options, Kernel>::share([[maybe_unused]] const WholeTensors* whole) {
  if constexpr (requires { work_->whole = whole; }) work_->whole = whole;
}

}}  // namespace holdfast::v0_2
