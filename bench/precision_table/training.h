// An endless training on one batch: forward, backward, update. With loss scaling for FP16, and accumulation
// for large updates. No step waits for a GPU.
//
// Errors: those of torch. Threads: one thread, on a GPU its current stream.
#pragma once

#include <c10/core/Device.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "holdfast/optim/fused_step.h"
#include "holdfast/precision/grad_scaler.h"
#include "holdfast/precision/precision.h"
#include "workload.h"

namespace holdfast::bench {

struct OptimizerChoice {
  std::string name = "sgd";  // or "lamb": without decay of biases and norms, gradients clipped to a norm of 1
  double rate = 1e-4;        // so small that losses stay finite on noise
  double momentum = 0.9;     // SGD only
  double weight_decay = 4e-5;
};

struct TrainingOptions {
  Precision precision = Precision::fp32;
  std::string layout = "nchw";  // or "nhwc": layout of convolution weights and pictures
  OptimizerChoice optimizer = {};
  std::int64_t accumulation = 1;  // forward passes of one update
  bool update = true;             // false: forward and backward only
};

class Training {
 public:
  // Moves the module to the device. It has no inputs yet.
  Training(Workload work, c10::Device device, const TrainingOptions& options);

  void give(Inputs inputs);  // replaces earlier inputs
  const Inputs& inputs() const { return inputs_; }
  const Workload& work() const { return work_; }
  const TrainingOptions& options() const { return options_; }

  // Clears gradients, makes `accumulation` passes, updates.
  void step();
  double loss() const;  // of the last pass; waits for the device

  // The parts of a step, for graphs of some of them. `keep`: zeroes gradients in place.
  void forget_gradients(bool keep = false);
  void pass();
  void update();

 private:
  Workload work_;
  c10::Device device_;
  TrainingOptions options_;
  Inputs inputs_;
  at::Tensor loss_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  FusedStep* fused_ = nullptr;  // the same optimizer, or null
  std::optional<GradScaler> scaler_;
};

}  // namespace holdfast::bench
