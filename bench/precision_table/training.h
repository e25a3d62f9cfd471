// A training without data and without an end: the same batch again and again, forward, backward, SGD; for
// FP16 with loss scaling. Nothing in a step waits for a GPU.
//
// Errors: what Torch throws. Threads: one thread; on a GPU its current stream.
#pragma once

#include <c10/core/Device.h>
#include <torch/optim/sgd.h>

#include <optional>
#include <string>

#include "holdfast/models/picture_model.h"
#include "holdfast/optim/fused_sgd.h"
#include "holdfast/precision/grad_scaler.h"
#include "holdfast/precision/precision.h"

namespace holdfast::bench {

struct Inputs {
  at::Tensor pictures;  // on the device that is to train
  at::Tensor labels;
};

class Training {
 public:
  // `layout`: "nchw" or "nhwc", of convolutions' weights and of the pictures.
  Training(PictureModel model, Precision precision, const std::string& layout, Inputs inputs,
           const torch::optim::SGDOptions& options);

  void step();
  double loss() const;  // of the last step; waits for the device

 private:
  PictureModel model_;
  Precision precision_;
  Inputs inputs_;
  at::Tensor loss_;
  std::optional<FusedSgd> optimizer_;
  std::optional<GradScaler> scaler_;
};

}  // namespace holdfast::bench
