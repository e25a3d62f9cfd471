#include "holdfast/models/resnet.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>
#include <cstdint>
#include <set>

#include "holdfast/base/error.h"

namespace {

using holdfast::ResNet;
using holdfast::ResNetOptions;
using holdfast::Stem;

std::int64_t count(const ResNet& net) {
  std::int64_t all = 0;
  for (const at::Tensor& parameter : net->parameters()) all += parameter.numel();
  return all;
}

ResNetOptions bare(int depth, std::int64_t classes = 1000) {
  return {.depth = depth, .num_classes = classes, .initialize = false};
}

TEST(ResNet, HasTheParametersOfTheOriginals) {
  EXPECT_EQ(count(ResNet(bare(18))), 11'689'512);
  EXPECT_EQ(count(ResNet(bare(34))), 21'797'672);
  EXPECT_EQ(count(ResNet(bare(50))), 25'557'032);
  EXPECT_EQ(count(ResNet(bare(50, 10))), 23'528'522);
  EXPECT_EQ(count(ResNet(bare(101))), 44'549'160);
  EXPECT_EQ(count(ResNet(bare(152))), 60'192'808);
}

TEST(ResNet, HasTorchvisionsNamesInTorchvisionsOrder) {
  const ResNet net(bare(50));
  std::vector<std::string> names;
  for (const auto& item : net->named_parameters()) names.push_back(item.key());
  ASSERT_EQ(names.size(), 161u);
  EXPECT_EQ(names.size() + net->named_buffers().size(), 320u);
  const std::vector<std::string> first{"conv1.weight",
                                       "bn1.weight",
                                       "bn1.bias",
                                       "layer1.0.conv1.weight",
                                       "layer1.0.bn1.weight",
                                       "layer1.0.bn1.bias",
                                       "layer1.0.conv2.weight",
                                       "layer1.0.bn2.weight",
                                       "layer1.0.bn2.bias",
                                       "layer1.0.conv3.weight",
                                       "layer1.0.bn3.weight",
                                       "layer1.0.bn3.bias",
                                       "layer1.0.downsample.0.weight",
                                       "layer1.0.downsample.1.weight",
                                       "layer1.0.downsample.1.bias",
                                       "layer1.1.conv1.weight"};
  EXPECT_EQ(std::vector(names.begin(), names.begin() + 16), first);
  EXPECT_EQ(names[names.size() - 2], "fc.weight");
  EXPECT_EQ(names.back(), "fc.bias");
  std::set<std::string> buffers;
  for (const auto& item : net->named_buffers()) buffers.insert(item.key());
  for (const char* name : {"layer2.1.bn3.running_var", "layer3.3.bn2.running_mean", "bn1.num_batches_tracked",
                           "layer4.0.downsample.1.running_mean"}) {
    EXPECT_TRUE(buffers.contains(name)) << name;
  }
}

TEST(ResNet, TheStrideSitsInTheMiddleConvolution) {
  ResNet net(bare(50));
  const auto modules = net->named_modules();
  EXPECT_EQ(modules["layer2.0.conv1"]->as<torch::nn::Conv2dImpl>()->options.stride()->at(0), 1);
  EXPECT_EQ(modules["layer2.0.conv2"]->as<torch::nn::Conv2dImpl>()->options.stride()->at(0), 2);
}

TEST(ResNet, TheStrideOfTheTablesSitsInTheFirstConvolution) {
  ResNetOptions options = bare(50);
  options.variant = holdfast::ModelVariant::table;
  ResNet net(options);
  const auto modules = net->named_modules();
  EXPECT_EQ(modules["layer2.0.conv1"]->as<torch::nn::Conv2dImpl>()->options.stride()->at(0), 2);
  EXPECT_EQ(modules["layer2.0.conv2"]->as<torch::nn::Conv2dImpl>()->options.stride()->at(0), 1);
}

TEST(ResNet, StartsAsTorchvisionDoes) {
  torch::manual_seed(1);
  const ResNet net(ResNetOptions{.depth = 50, .num_classes = 10});
  for (const auto& item : net->named_parameters()) {
    const at::Tensor& value = item.value();
    if (value.dim() == 4) {
      const double expected =
          std::sqrt(2.0 / static_cast<double>(value.size(0) * value.size(2) * value.size(3)));
      const double n = static_cast<double>(value.numel());
      EXPECT_NEAR(value.std().item<double>() / expected, 1.0, 5 / std::sqrt(2 * n)) << item.key();
      EXPECT_NEAR(value.mean().item<double>() / expected, 0.0, 5 / std::sqrt(n)) << item.key();
    } else if (item.key() == "fc.weight" || item.key() == "fc.bias") {
      EXPECT_LE(value.abs().max().item<double>(), 1 / std::sqrt(2048.0));
      EXPECT_GT(value.abs().max().item<double>(), 0.5 / std::sqrt(2048.0));
    } else {
      EXPECT_TRUE(value.equal(at::full_like(value, item.key().ends_with("weight") ? 1 : 0))) << item.key();
    }
  }
  torch::manual_seed(1);
  const ResNet again(ResNetOptions{.depth = 50, .num_classes = 10});
  for (std::size_t i = 0; i < 161; ++i) EXPECT_TRUE(net->parameters()[i].equal(again->parameters()[i]));
}

TEST(ResNet, MayStartWithBlocksAsIdentity) {
  for (const int depth : {18, 50}) {
    const ResNet net(
        ResNetOptions{.depth = depth, .num_classes = 10, .width = 4, .zero_init_residual = true});
    const std::string last = depth == 18 ? "bn2.weight" : "bn3.weight";
    int zeros = 0;
    for (const auto& item : net->named_parameters()) {
      if (!item.key().starts_with("layer") || !item.key().ends_with(last)) continue;
      EXPECT_EQ(item.value().abs().max().item<double>(), 0) << item.key();
      ++zeros;
    }
    EXPECT_EQ(zeros, depth == 18 ? 8 : 16);
  }
}

TEST(ResNet, BothStemsTakeSmallPictures) {
  for (const Stem stem : {Stem::imagenet, Stem::cifar}) {
    for (const int depth : {18, 50}) {
      ResNet net(ResNetOptions{.depth = depth, .num_classes = 10, .stem = stem, .width = 4});
      const at::Tensor logits = net->forward(at::zeros({2, 3, 32, 32}));
      EXPECT_EQ(logits.sizes(), (at::IntArrayRef{2, 10}));
    }
  }
}

TEST(ResNet, RefusesUnknownShapes) {
  EXPECT_THROW(ResNet(bare(49)), holdfast::UsageError);
  EXPECT_THROW(ResNet(bare(50, 0)), holdfast::UsageError);
  EXPECT_THROW(ResNet(ResNetOptions{.width = 0}), holdfast::UsageError);
}

}  // namespace
