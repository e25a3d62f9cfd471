// The loss and the score of a batch, in the precision and memory layout of the options.
//
// Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include "examples/models/resnet.h"
#include "holdfast/data/loader.h"
#include "holdfast/train/trainer.h"
#include "options.h"

namespace example {

// The model on its device.
class Forward {
 public:
  Forward(holdfast::ResNet net, at::Device device, const Options& options);

  // Called under the autocast that holdfast::Step opens.
  at::Tensor loss(const holdfast::Batch& batch);
  holdfast::Score score(const holdfast::Batch& batch);

 private:
  at::Tensor logits(const holdfast::Batch& batch);
  at::Tensor targets(const holdfast::Batch& batch) const;

  holdfast::ResNet net_;
  at::Device device_;
  holdfast::Precision precision_;
  double label_smoothing_;
  bool channels_last_;
};

}  // namespace example
