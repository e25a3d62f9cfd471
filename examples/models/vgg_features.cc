#include "examples/models/vgg_features.h"

#include <torch/nn/modules/pooling.h>

#include "examples/models/layers.h"

namespace holdfast { inline namespace v0_2 { namespace models {
namespace {

// Channels of the convolutions, each followed by a ReLU. 0: a pool that halves the side.
// Configuration D of Simonyan and Zisserman (2014).
constexpr int kLayers[] = {64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0};

}  // namespace

torch::nn::ReLU in_place_relu() { return torch::nn::ReLU(torch::nn::ReLUOptions(true)); }

torch::nn::Sequential vgg16_features() {
  torch::nn::Sequential features;
  std::int64_t channels = 3;
  for (const int layer : kLayers) {
    if (layer == 0) {
      features->push_back(torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(2).stride(2)));
      continue;
    }
    features->push_back(
        undrawn_conv({.in = channels, .out = layer, .kernel = 3, .padding = 1, .bias = true}));
    features->push_back(in_place_relu());
    channels = layer;
  }
  return features;
}

}}}  // namespace holdfast::v0_2::models
