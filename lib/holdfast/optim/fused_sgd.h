// torch::optim::SGD with momentum, Nesterov, dampening and weight decay, all of it in one kernel a list of
// tensors (at::_fused_sgd_) where torch's takes five a tensor.
//
//   holdfast::FusedSgd optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
//   holdfast::FusedSgd other(a_torch_sgd);        // its groups, options and slots; that one is left without
//   other.give_back(a_torch_sgd);                 // and back: the other one goes on
//
// Add to the TrainState, and schedule, the one that makes the updates: checkpoints of an adopted optimizer
// have no slots.
//
// It is a torch::optim::SGD: groups, options, slots, schedules and checkpoints (type, names, bits) are those.
//
// Bits. On a CPU, float and double: parameters and slots equal torch::optim::SGD's bit for bit, every update.
// On a GPU: within 1 ulp of the largest number in a sum, as the kernels contract sums of products otherwise,
// and the rate is a float. The same kernels as Python's fused=True.
// 16-bit parameters on a CPU: ATen's kernel for them loses updates in LibTorch 2.11 (it was tried at
// start-up); where it does, UsageError says so. Parameters of autocast are float.
//
// Differences from torch's that one may notice:
//   - a sparse gradient is a UsageError;
//   - with found_inf (fused_step.h) an update that is skipped makes no slots on a CPU. On a GPU they are
//     there, and zero, which is the same; only with dampening the first update waits for the answer.
//
// Requires, Errors, Threads: as fused_step.h. A module is moved or converted before the first update.
#pragma once

#include <torch/optim/sgd.h>

#include <memory>
#include <optional>
#include <vector>

#include "holdfast/optim/fused_step.h"

namespace holdfast::inline v1 {

// What the kernels can do and torch::optim cannot.
struct FusedOptions {
  bool maximize = false;  // go up the gradient; recorded in checkpoints where it is true
};

class FusedSgd : public torch::optim::SGD, public FusedStep {
 public:
  // UsageError for options that cannot be (negative rates, Nesterov without momentum or with dampening).
  FusedSgd(std::vector<torch::optim::OptimizerParamGroup> groups, torch::optim::SGDOptions defaults,
           FusedOptions more = {});
  FusedSgd(std::vector<at::Tensor> parameters, torch::optim::SGDOptions defaults, FusedOptions more = {});
  // Takes over; `adopted` must not be stepped before give_back.
  explicit FusedSgd(torch::optim::SGD& adopted, FusedOptions more = {});
  ~FusedSgd() override;

  void give_back(torch::optim::SGD& to);

  at::Tensor step(LossClosure closure = nullptr) override;
  void step_scaled(const std::optional<at::Tensor>& grad_scale,
                   const std::optional<at::Tensor>& found_inf) override;
  void write_rates() override;

  Kind kind() const override { return Kind::sgd; }
  bool maximizes() const override { return more_.maximize; }
  void settle() override {}

 protected:
  // Is skipping decided where the parameters are? Everywhere but on a CPU.
  virtual bool decides_on(at::Device device) const { return !device.is_cpu(); }

 private:
  struct Work;
  FusedOptions more_;
  std::unique_ptr<Work> work_;
};

}  // namespace holdfast::inline v1
