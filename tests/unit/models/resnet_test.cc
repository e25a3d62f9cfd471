#include "examples/models/resnet.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
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

using holdfast::BatchNormKind;

ResNet small(int depth, BatchNormKind kind, at::ScalarType type = at::kFloat) {
  torch::manual_seed(1);
  ResNet net(
      ResNetOptions{.depth = depth, .num_classes = 10, .stem = Stem::cifar, .width = 8, .batch_norm = kind});
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : net->parameters()) {
    if (parameter.dim() == 1) parameter.add_(at::randn_like(parameter), 0.2);
    if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
  }
  net->to(type);
  return net;
}

at::Tensor pictures_of(std::uint64_t seed, at::ScalarType type = at::kFloat) {
  torch::manual_seed(seed);
  return at::randn({6, 3, 12, 12}).to(type).contiguous(at::MemoryFormat::ChannelsLast);
}

// Logits, gradients, running statistics and logits in evaluation mode, each as one long row of numbers.
constexpr std::size_t kGradients = 1;
std::vector<at::Tensor> trained(ResNet net, const at::Tensor& pictures) {
  const at::Tensor logits = net->forward(pictures);
  logits.square().mean().backward();
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> statistics;
  for (const at::Tensor& parameter : net->parameters()) gradients.push_back(parameter.grad().flatten());
  for (const at::Tensor& buffer : net->buffers()) statistics.push_back(buffer.to(at::kDouble).flatten());
  net->eval();
  const at::NoGradGuard no_grad;
  return {logits.detach(), at::cat(gradients), at::cat(statistics), net->forward(pictures)};
}

TEST(ResNet, TrainsTheSameWithFusedBatchNorms) {
  for (const int depth : {18, 50}) {
    const auto exact = trained(small(depth, BatchNormKind::aten, at::kDouble), pictures_of(2, at::kDouble));
    const auto aten = trained(small(depth, BatchNormKind::aten), pictures_of(2));
    const auto fused = trained(small(depth, BatchNormKind::fused), pictures_of(2));
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const double norm = exact[i].norm().item<double>();
      const double off = (aten[i].to(at::kDouble) - exact[i]).norm().item<double>() / norm;
      // One unit on the other side of its ReLU moves a layer's gradient by a hundredth; who it is depends on
      // the machine's convolutions.
      const double allowed = i == kGradients ? std::max(3 * off, 0.03) : 10 * off + 1e-5;
      EXPECT_LE((fused[i].to(at::kDouble) - exact[i]).norm().item<double>() / norm, allowed)
          << "ResNet-" << depth << ", " << i << ", against " << off;
    }
  }
}

TEST(ResNet, HasTheSameNamesWhoeverComputesBatchNorms) {
  const ResNet aten(ResNetOptions{.depth = 18, .width = 8, .initialize = false});
  const ResNet fused(
      ResNetOptions{.depth = 18, .width = 8, .batch_norm = BatchNormKind::fused, .initialize = false});
  EXPECT_EQ(aten->named_parameters().keys(), fused->named_parameters().keys());
  EXPECT_EQ(aten->named_buffers().keys(), fused->named_buffers().keys());
}

void copy_state(ResNet& to, const ResNet& from) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < from->parameters().size(); ++i)
    to->parameters()[i].copy_(from->parameters()[i]);
  for (std::size_t i = 0; i < from->buffers().size(); ++i) to->buffers()[i].copy_(from->buffers()[i]);
}

void train_step(ResNet& net, std::uint64_t step) {
  net->forward(pictures_of(step)).square().mean().backward();
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : net->parameters()) {
    parameter.sub_(parameter.grad(), 0.01);
    parameter.mutable_grad() = at::Tensor();
  }
}

TEST(ResNet, GoesOnWithTheSameBitsWithFusedBatchNorms) {
  ResNet whole = small(18, BatchNormKind::fused);
  ResNet resumed(ResNetOptions{
      .depth = 18, .num_classes = 10, .stem = Stem::cifar, .width = 8, .batch_norm = BatchNormKind::fused});
  for (at::Tensor& parameter : resumed->parameters()) {
    if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
  }
  for (std::uint64_t step = 0; step < 4; ++step) {
    if (step == 2) copy_state(resumed, whole);
    train_step(whole, step);
    if (step >= 2) train_step(resumed, step);
  }
  for (std::size_t i = 0; i < whole->parameters().size(); ++i) {
    EXPECT_TRUE(whole->parameters()[i].equal(resumed->parameters()[i])) << i;
  }
  for (std::size_t i = 0; i < whole->buffers().size(); ++i) {
    EXPECT_TRUE(whole->buffers()[i].equal(resumed->buffers()[i])) << i;
  }
}

TEST(ResNet, SaysWhatFusedBatchNormsNeed) {
  const auto said = [](BatchNormKind kind, const at::Tensor& pictures) -> std::string {
    try {
      small(18, kind)->forward(pictures);
    } catch (const holdfast::UsageError& error) {
      return error.what();
    }
    return "accepted";
  };
  using testing::HasSubstr;
  EXPECT_EQ(said(BatchNormKind::fused, pictures_of(1)), "accepted");
  EXPECT_THAT(said(BatchNormKind::fused, pictures_of(1).contiguous()), HasSubstr("--channels-last"));
  ResNet counted = small(18, BatchNormKind::fused);  // as count_work() does
  counted->eval();
  EXPECT_EQ(counted->forward(at::zeros({0, 3, 12, 12})).sizes(), (at::IntArrayRef{0, 10}));
  EXPECT_EQ(holdfast::parse_batch_norm("fused"), BatchNormKind::fused);
  EXPECT_EQ(holdfast::word_of(BatchNormKind::fused), "fused");
  EXPECT_THROW(holdfast::parse_batch_norm("cudnn"), holdfast::UsageError);
}

TEST(ResNet, RefusesUnknownShapes) {
  EXPECT_THROW(ResNet(bare(49)), holdfast::UsageError);
  EXPECT_THROW(ResNet(bare(50, 0)), holdfast::UsageError);
  EXPECT_THROW(ResNet(ResNetOptions{.width = 0}), holdfast::UsageError);
}

}  // namespace
