// The common part of FusedSgd, FusedAdam, FusedAdamW and Lamb: a torch::optim class (`Torch`; for LAMB its
// base class) whose update is that of fused_step.h. A group that brings options keeps exactly those in every
// LibTorch release.
//
// The adopting constructor and give_back() move groups, options and slots between this and a torch::optim
// object of the same parameters. The object without slots must make no updates, and saving it throws
// UsageError.
//
// Requires, errors, threads: as in fused_step.h. UsageError for impossible options, for a parameter that is
// listed twice, and if one optimizer of an adoption maximizes and the other minimizes.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <optional>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "holdfast/optim/fused_step.h"

namespace holdfast { inline namespace v0_2 {

namespace internal {
// The kernel calls of one optimizer, and the memory that its updates reuse.
template <class Kernel>
struct FusedWork;
}  // namespace internal

// Options that the kernels have and torch::optim lacks.
struct FusedOptions {
  // Goes up the gradient instead of down. No cost. Checkpoints record it only if true.
  bool maximize = false;
};

// TrainState refuses a derived class that has state of its own. A derived class without state overrides
// OwnOptimizer::described().
template <class Torch, class Options, class Kernel>
class FusedOptimizer : public Torch, public FusedStep {
  static constexpr bool kAdopts = !std::is_same_v<Torch, torch::optim::Optimizer>;

 public:
  FusedOptimizer(std::vector<torch::optim::OptimizerParamGroup> groups, Options defaults,
                 FusedOptions more = {});
  FusedOptimizer(std::vector<at::Tensor> parameters, Options defaults, FusedOptions more = {});
  // Takes over the slots of `adopted`, which must not be stepped before give_back().
  explicit FusedOptimizer(Torch& adopted, FusedOptions more = {}) requires(kAdopts);
  ~FusedOptimizer() override;

  // `to` continues with the same groups, options and slots.
  void give_back(Torch& to) requires(kAdopts);

  void add_param_group(const torch::optim::OptimizerParamGroup& group);
  at::Tensor step(torch::optim::Optimizer::LossClosure closure = nullptr) override;
  void save(torch::serialize::OutputArchive& archive) const override;

  void step_scaled(const std::optional<at::Tensor>& grad_scale,
                   const std::optional<at::Tensor>& found_inf) override;
  void write_rates() override;

  const OptimizerKind& kind() const override;
  const std::type_info& described() const override { return typeid(FusedOptimizer); }
  bool maximizes() const override { return more_.maximize; }
  void settle() override;
  void share(const WholeTensors* whole) override;

 protected:
  // True if the device decides whether to skip an update. Everywhere except on a CPU.
  virtual bool decides_on(at::Device device) const { return !device.is_cpu(); }

 private:
  FusedOptions more_;
  std::unique_ptr<internal::FusedWork<Kernel>> work_;
};

}}  // namespace holdfast::v0_2
