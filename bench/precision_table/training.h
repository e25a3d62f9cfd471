// A training without data and without an end: the same batch again and again, forward, backward, update; for
// FP16 with loss scaling, for large updates with accumulation. Nothing in a step waits for a GPU.
//
// Errors: what Torch throws. Threads: one thread; on a GPU its current stream.
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
  double momentum = 0.9;     // SGD's
  double weight_decay = 4e-5;
};

struct TrainingOptions {
  Precision precision = Precision::fp32;
  std::string layout = "nchw";  // or "nhwc": of convolutions' weights and of pictures
  OptimizerChoice optimizer = {};
  std::int64_t accumulation = 1;  // forward passes of an update
  bool update = true;             // false: forward and backward alone
};

class Training {
 public:
  // Moves the module to the device. Has no inputs yet.
  Training(Workload work, c10::Device device, const TrainingOptions& options);

  void give(Inputs inputs);  // takes the place of earlier ones
  const Inputs& inputs() const { return inputs_; }
  const Workload& work() const { return work_; }
  const TrainingOptions& options() const { return options_; }

  // Forgets gradients, passes `accumulation` times, updates.
  void step();
  double loss() const;  // of the last pass; waits for the device

  // The parts of a step, for a graph of some of them. keep: gradients are zeroed where they lie.
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
  FusedStep* fused_ = nullptr;  // the same
  std::optional<GradScaler> scaler_;
};

}  // namespace holdfast::bench
