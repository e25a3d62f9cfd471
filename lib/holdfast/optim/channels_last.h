// Converts a model to NHWC, the memory format in which tensor cores and oneDNN convolve fastest.
//
//   holdfast::to_channels_last(*net);               // before or after the optimizer is made
//   holdfast::to_channels_last(optimizer);          // only if it has made updates already
//   net->forward(images.contiguous(at::MemoryFormat::ChannelsLast));
//
// Only 4-dimensional parameters and their gradients (for an optimizer: slots) change, and only their strides.
// Values, names and the identity of tensors stay, so optimizers and checkpoints still know them. A second
// call does nothing.
//
// Requires: no captured CUDA graph of this model, because storages change. Threads: the training thread.
#pragma once

#include "holdfast/base/export.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace holdfast { inline namespace v0_2 {

HOLDFAST_EXPORT void to_channels_last(torch::nn::Module& module);
// Lays out slots of torch::optim's SGD, Adam, AdamW, RMSprop and Adagrad, and of the optimizers of
// holdfast/optim, so that a fused update need not copy them.
HOLDFAST_EXPORT void to_channels_last(torch::optim::Optimizer& optimizer);

}}  // namespace holdfast::v0_2
