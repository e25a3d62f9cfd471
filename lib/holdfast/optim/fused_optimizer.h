// What FusedSgd, FusedAdam, FusedAdamW and Lamb have in common: an optimizer of torch::optim (`Torch`; LAMB,
// which it lacks, is one of its base class) whose update is fused_step.h's.
//
// Groups. A group that brings options has exactly those, in every release of LibTorch; from 2.12 on
// torch::optim itself takes its defaults for those that are as a constructor leaves them.
//
// Adopting and giving back moves groups, options and slots between this and a torch::optim object of the same
// parameters. The one that has no slots any more must make no updates; a TrainState that holds it refuses to
// save it (UsageError), so that no checkpoint lacks them.
//
// A class derived from one of these that has state of its own is no part of a TrainState; one that has none
// says so (OwnOptimizer::described).
//
// Requires, Errors, Threads: as fused_step.h. UsageError for options that cannot be, and for adopting or
// giving back where one goes up the gradient and the other down.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <optional>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "holdfast/optim/fused_step.h"

namespace holdfast::inline v1 {

namespace internal {
// What is particular to an optimizer, with the memory that its updates use again.
template <class Kernel>
struct FusedWork;
}  // namespace internal

// What the kernels can do and torch::optim cannot.
struct FusedOptions {
  bool maximize = false;  // go up the gradient; recorded in checkpoints where it is true
};

template <class Torch, class Options, class Kernel>
class FusedOptimizer : public Torch, public FusedStep {
  static constexpr bool kAdopts = !std::is_same_v<Torch, torch::optim::Optimizer>;

 public:
  FusedOptimizer(std::vector<torch::optim::OptimizerParamGroup> groups, Options defaults,
                 FusedOptions more = {});
  FusedOptimizer(std::vector<at::Tensor> parameters, Options defaults, FusedOptions more = {});
  // Takes over; `adopted` must not be stepped before give_back.
  explicit FusedOptimizer(Torch& adopted, FusedOptions more = {}) requires(kAdopts);
  ~FusedOptimizer() override;

  // `to` goes on with the same groups, options and slots.
  void give_back(Torch& to) requires(kAdopts);

  void add_param_group(const torch::optim::OptimizerParamGroup& group);
  at::Tensor step(torch::optim::Optimizer::LossClosure closure = nullptr) override;
  void save(torch::serialize::OutputArchive& archive) const override;

  void step_scaled(const std::optional<at::Tensor>& grad_scale,
                   const std::optional<at::Tensor>& found_inf) override;
  void write_rates() override;

  Kind kind() const override;
  const std::type_info& described() const override { return typeid(FusedOptimizer); }
  bool maximizes() const override { return more_.maximize; }
  void settle() override;
  void share(const WholeTensors* whole) override;

 protected:
  // Is skipping decided where the parameters are? Everywhere but on a CPU.
  virtual bool decides_on(at::Device device) const { return !device.is_cpu(); }

 private:
  FusedOptions more_;
  std::unique_ptr<internal::FusedWork<Kernel>> work_;
};

}  // namespace holdfast::inline v1
