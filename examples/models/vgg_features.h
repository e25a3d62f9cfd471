// The convolutions of VGG-16. Its classifier uses them whole; SSD300 takes them apart.
//
// Errors: none. Threads: as torch::nn::Module.
#pragma once

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>

namespace holdfast { inline namespace v0_2 { namespace models {

torch::nn::ReLU in_place_relu();

// 31 layers by torchvision's numbers: convolutions with bias and undrawn parameters, each with its ReLU, and
// pools at 4, 9, 16, 23, 30.
torch::nn::Sequential vgg16_features();

}}}  // namespace holdfast::v0_2::models
