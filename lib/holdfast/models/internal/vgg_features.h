// The convolutions of VGG-16: its classifier stands behind them, and SSD300 takes them apart.
//
// Errors: none. Threads: as torch::nn::Module.
#pragma once

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>

namespace holdfast::inline v1::models {

torch::nn::ReLU in_place_relu();

// 31 layers by torchvision's numbers: convolutions with bias and undrawn parameters, each with its ReLU, and
// pools at 4, 9, 16, 23, 30.
torch::nn::Sequential vgg16_features();

}  // namespace holdfast::inline v1::models
