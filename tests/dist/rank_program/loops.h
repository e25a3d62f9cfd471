// A small training, by DataParallel and by plain c10d::Reducer as PyTorch's own wrapper uses it. Both take
// their data from the number of the step alone: a rank takes its share of a global batch of 24.
//
// Threads: one.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <string>

#include "holdfast/distributed/data_parallel.h"

namespace holdfast::test {

struct Setting {
  const char* name = "plain";
  int steps = 100;
  int micro_batches = 1;
  bool buffers = false;  // batch normalization
  bool unused = false;   // every other step leaves a layer out
  GradientCompression compression = GradientCompression::none;
  c10::ScalarType type = c10::kDouble;
  int hidden = 48;
};

// Gradients become ready in another order than the one of registration.
struct Net : torch::nn::Module {
  Net(const Setting& setting, int seed);
  at::Tensor forward(at::Tensor x, bool skip);

  torch::nn::Linear last, first, middle;
  torch::nn::BatchNorm1d normal{nullptr};
};

DataParallelOptions options_of(const Setting& setting);  // several buckets

// Forward and backward passes of one step, and plain SGD. `parallel` may be of a world of one.
void train_step(Net& net, DataParallel& parallel, const ProcessGroup& group, const Setting& setting,
                int step);
// All steps by c10d alone.
void train_plainly(Net& net, const ProcessGroup& group, const Setting& setting);

// The bytes of all parameters, and of all buffers where asked for.
std::string bytes_of(const Net& net, bool buffers = false);

}  // namespace holdfast::test
