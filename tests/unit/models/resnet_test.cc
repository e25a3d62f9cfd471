#include "holdfast/models/resnet.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
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

// An oracle without downloads: parameters and pictures are filled with a hash, and loss, logits and gradients
// are compared with torchvision's resnet50 in float64.
std::uint32_t hash32(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ x >> 16;
}
double uniform(std::uint32_t stream, std::int64_t i) {
  return (hash32(static_cast<std::uint32_t>(i) + 0x9E3779B9u * (stream + 1)) >> 8) * 0x1p-23 - 1.0;
}

at::Tensor filled(at::IntArrayRef sizes, std::uint32_t stream, double factor, double offset) {
  at::Tensor tensor = at::empty(sizes, at::kDouble);
  auto* to = tensor.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    to[i] = static_cast<float>(offset + factor * uniform(stream, i));
  }
  return tensor;
}

void fill(const ResNet& net) {
  const at::NoGradGuard no_grad;
  std::uint32_t stream = 0;
  for (auto& item : net->named_parameters()) {
    at::Tensor& value = item.value();
    const bool weight = item.key().ends_with("weight");
    const std::int64_t fan_in = value.dim() >= 2 ? value.numel() / value.size(0) : 1;
    const double factor = value.dim() >= 2 ? std::sqrt(6.0 / static_cast<double>(fan_in)) : 0.1;
    value.copy_(filled(value.sizes(), stream++, factor, value.dim() == 1 && weight ? 1.0 : 0.0));
  }
}

void expect_close(double value, double oracle, const char* what) {
  EXPECT_NEAR(value / oracle, 1.0, 1e-8) << what << ": " << value;
}

TEST(ResNet, MatchesTorchvisionInFloat64) {
  ResNet net(bare(50));
  net->to(at::kDouble);
  fill(net);
  double psum = 0;
  double pabs = 0;
  for (const at::Tensor& parameter : net->parameters()) {
    psum += parameter.detach().sum().item<double>();
    pabs += parameter.detach().abs().sum().item<double>();
  }
  expect_close(psum, 26722.3479, "sum of the parameters");
  expect_close(pabs, 927261.728, "absolute sum of the parameters");

  const at::Tensor pictures = filled({2, 3, 64, 64}, 1'000'002, 1.0, 0.0);
  const at::Tensor labels = at::tensor({std::int64_t{11}, std::int64_t{48}});
  const at::Tensor logits = net->forward(pictures);
  const at::Tensor loss = at::cross_entropy_loss(logits, labels);
  loss.backward();
  expect_close(loss.item<double>(), 11.3856656, "loss");
  expect_close(logits.sum().item<double>(), 34.527572, "sum of the logits");
  expect_close(logits.abs().sum().item<double>(), 2526.49868, "absolute sum of the logits");
  expect_close(logits[0][0].item<double>(), -0.295929403, "first logit");
  expect_close(logits[1][999].item<double>(), 1.69583121, "last logit");
  double squares = 0;
  for (const at::Tensor& parameter : net->parameters())
    squares += parameter.grad().square().sum().item<double>();
  expect_close(std::sqrt(squares), 2922.53055, "norm of the gradients");
  expect_close(net->parameters().front().grad().norm().item<double>(), 1602.84789, "gradient of conv1");
  double mean = 0;
  double variance = 0;
  for (const auto& item : net->named_buffers()) {
    if (item.key().ends_with("running_mean")) mean += item.value().sum().item<double>();
    if (item.key().ends_with("running_var")) variance += item.value().sum().item<double>();
  }
  expect_close(mean, 19.0327179, "running means");
  expect_close(variance, 27748.9293, "running variances");

  net->eval();
  const at::NoGradGuard no_grad;
  expect_close(at::cross_entropy_loss(net->forward(pictures), labels).item<double>(), 1223.09727,
               "evaluation");
}

}  // namespace
