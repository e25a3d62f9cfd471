// What Inception v3 and v4 are made of, how they start, what the variant `table` changes, and what they
// refuse.
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "examples/models/inception_block.h"
#include "examples/models/inception_v3.h"
#include "holdfast/base/error.h"
#include "support/nightly.h"
#include "unit/models/exported_weights.h"
#include "unit/models/inceptions.h"
#include "unit/models/oracle_fill.h"

namespace holdfast::test { namespace {

using testing::Contains;
using testing::HasSubstr;

using Inceptions = OnOneThread<testing::Test>;

std::int64_t parameters_of(const PictureModel& model) {
  std::int64_t all = 0;
  for (const at::Tensor& parameter : model.module->parameters()) all += parameter.numel();
  return all;
}

// As in a state dict.
std::vector<std::string> keys_of(const torch::nn::Module& net) {
  std::vector<std::string> keys = net.named_parameters().keys();
  for (const auto& item : net.named_buffers()) keys.push_back(item.key());
  return keys;
}

TEST_F(Inceptions, HaveTheParametersAndTheArithmeticOfTheOriginals) {
  struct Counts {
    const char* name;
    ModelVariant variant;
    bool auxiliary;
    std::int64_t parameters;
    double forward_gmacs, train_gflops;
    std::size_t tensors, keys;
  };
  // Without scales, a batch norm's two parameters a channel are one: 17,216 and 31,584 channels. One class
  // more is a row of 2048 or 1536 weights and a bias.
  constexpr Counts kCounts[] = {
      {"inception_v3", ModelVariant::torchvision, true, 27'161'264, 5.7189, 34.275, 292, 580},
      {"inception_v3", ModelVariant::torchvision, false, 23'834'568, 5.7132, 34.241, 284, 566},
      {"inception_v3", ModelVariant::table, false, 23'834'568 - 17'216 + 2049, 5.7132, 34.241, 190, 566},
      {"inception_v4", ModelVariant::torchvision, false, 42'679'816, 12.2540, 73.486, 449, 896},
      {"inception_v4", ModelVariant::table, false, 42'679'816 - 31'584 + 1537, 12.2540, 73.486, 300, 896},
  };
  for (const Counts& one : kCounts) {
    SCOPED_TRACE(std::string(one.name) + " " + std::string(word_of(one.variant)));
    const PictureModel model = undrawn(one.name, one.variant, one.auxiliary, /*classes=*/0);
    EXPECT_EQ(model.num_classes, one.variant == ModelVariant::table ? 1001 : 1000);
    EXPECT_EQ(model.pixels, 299);
    EXPECT_EQ(parameters_of(model), one.parameters);
    EXPECT_EQ(model.module->parameters().size(), one.tensors);
    EXPECT_EQ(keys_of(*model.module).size(), one.keys);
    const ModelWork work = count_work(model, 299);
    EXPECT_NEAR(work.forward_macs / 1e9, one.forward_gmacs, 0.00006);  // to the digits that are known
    EXPECT_NEAR(work.train_flops / 1e9, one.train_gflops, 0.0006);
  }
}

TEST_F(Inceptions, HaveTheNamesOfTheOriginalsInTheirOrder) {
  const auto v3 = undrawn("inception_v3", ModelVariant::torchvision, true).module->named_parameters().keys();
  EXPECT_EQ(std::vector(v3.begin(), v3.begin() + 3),
            (std::vector<std::string>{"Conv2d_1a_3x3.conv.weight", "Conv2d_1a_3x3.bn.weight",
                                      "Conv2d_1a_3x3.bn.bias"}));
  // From the last block of 17x17 over the head to the first of 8x8, and the end.
  const std::vector<std::string> middle = {
      "Mixed_6e.branch_pool.bn.bias",    "AuxLogits.conv0.conv.weight", "AuxLogits.conv0.bn.weight",
      "AuxLogits.conv0.bn.bias",         "AuxLogits.conv1.conv.weight", "AuxLogits.conv1.bn.weight",
      "AuxLogits.conv1.bn.bias",         "AuxLogits.fc.weight",         "AuxLogits.fc.bias",
      "Mixed_7a.branch3x3_1.conv.weight"};
  const auto at = std::find(v3.begin(), v3.end(), middle.front());
  ASSERT_GE(v3.end() - at, 10);
  EXPECT_EQ(std::vector(at, at + 10), middle);
  EXPECT_EQ(v3.back(), "fc.bias");

  const auto v4 = undrawn("inception_v4").module->named_parameters().keys();
  EXPECT_EQ(v4[0], "features.0.conv.weight");
  EXPECT_EQ(v4[1], "features.0.bn.weight");
  EXPECT_EQ(v4[9], "features.3.conv.conv.weight");
  EXPECT_EQ(v4.back(), "last_linear.bias");

  const std::vector<std::string> some_of_v3 = {
      "Mixed_6b.branch7x7_2.bn.weight",         "Mixed_6e.branch7x7dbl_1.bn.bias",
      "Mixed_5b.branch5x5_2.conv.weight",       "Mixed_5d.branch3x3dbl_3.bn.running_var",
      "Mixed_6a.branch3x3.bn.running_mean",     "Mixed_7a.branch7x7x3_4.conv.weight",
      "Mixed_7c.branch3x3dbl_3b.bn.running_var"};
  const std::vector<std::string> some_of_v4 = {
      "features.11.branch2.2.bn.running_var", "features.16.branch2.2.bn.running_mean",
      "features.4.branch1.3.conv.weight",     "features.5.conv.bn.num_batches_tracked",
      "features.6.branch3.1.conv.weight",     "features.10.branch0.bn.bias",
      "features.19.branch1_1a.conv.weight",   "features.21.branch2_3b.bn.weight"};
  for (const ModelVariant variant : {ModelVariant::torchvision, ModelVariant::table}) {
    const auto keys_of_v3 = keys_of(*undrawn("inception_v3", variant).module);
    for (const std::string& key : some_of_v3) EXPECT_THAT(keys_of_v3, Contains(key));
    const auto keys_of_v4 = keys_of(*undrawn("inception_v4", variant).module);
    for (const std::string& key : some_of_v4) EXPECT_THAT(keys_of_v4, Contains(key));
  }
}

TEST_F(Inceptions, OfTheTableHaveNormsWithoutAScale) {
  for (const char* name : {"inception_v3", "inception_v4"}) {
    const PictureModel model = undrawn(name, ModelVariant::table);
    int norms = 0;
    for (const auto& module : model.module->modules()) {
      const auto* norm = module->as<torch::nn::BatchNorm2dImpl>();
      if (norm == nullptr) continue;
      ++norms;
      EXPECT_EQ(norm->named_parameters().keys(), std::vector<std::string>{"bias"});
      EXPECT_TRUE(norm->named_buffers()["weight"].equal(at::ones({norm->options.num_features()})));
      EXPECT_DOUBLE_EQ(norm->options.momentum().value(), 0.001);
      EXPECT_DOUBLE_EQ(norm->options.eps(), 1e-3);
    }
    EXPECT_EQ(norms, std::string(name) == "inception_v3" ? 94 : 149);
  }
}

// What the branch behind a block's pool makes of x, when its convolution only passes channels on.
at::Tensor pooled_by(torch::nn::Module& net, const std::string& key, const at::Tensor& x) {
  const auto block =
      std::dynamic_pointer_cast<models::InceptionBlockImpl>(net.named_modules(std::string())[key]);
  const bool v3 = net.named_children().contains("fc");
  at::Tensor weight = block->named_parameters()[v3 ? "branch_pool.conv.weight" : "branch3.1.conv.weight"];
  weight.zero_();
  for (std::int64_t i = 0; i < weight.size(0); ++i) weight[i][i] = 1;
  block->eval();
  return block->forward(x).slice(1, block->out_channels() - weight.size(0)) * std::sqrt(1.001);
}

TEST_F(Inceptions, PoolAsTheirVariantDoes) {
  const at::NoGradGuard no_grad;
  const auto average = [](const at::Tensor& x, bool zeros_count) {
    return at::avg_pool2d(x, {3, 3}, {1, 1}, {1, 1}, false, zeros_count);
  };
  for (const ModelVariant variant : {ModelVariant::torchvision, ModelVariant::table}) {
    const bool table = variant == ModelVariant::table;
    for (const auto& [name, key, channels] : {std::tuple{"inception_v3", "Mixed_5b", 192},
                                              {"inception_v3", "Mixed_6e", 768},
                                              {"inception_v3", "Mixed_7b", 1280},
                                              {"inception_v3", "Mixed_7c", 2048},
                                              {"inception_v4", "features.6", 384},
                                              {"inception_v4", "features.17", 1024},
                                              {"inception_v4", "features.21", 1536}}) {
      SCOPED_TRACE(std::string(key) + " " + std::string(word_of(variant)));
      const at::Tensor x = oracle_filled({1, channels, 4, 4}, 7, 1, 1).to(at::kFloat);
      const bool zeros_count = name == std::string("inception_v3") && !table;
      const bool maximum = table && key == std::string("Mixed_7c");
      const PictureModel model = undrawn(name, variant);
      const at::Tensor y = pooled_by(*model.module, key, x);
      const at::Tensor expected =
          maximum ? at::max_pool2d(x, {3, 3}, {1, 1}, {1, 1}) : average(x, zeros_count);
      EXPECT_TRUE(y.allclose(expected.slice(1, 0, y.size(1)), 1e-4));
    }
  }
}

TEST_F(Inceptions, StartAsTheirSourcesDo) {
  torch::manual_seed(1);
  for (const char* name : {"inception_v3", "inception_v4"}) {
    for (const ModelVariant variant : {ModelVariant::torchvision, ModelVariant::table}) {
      const bool table = variant == ModelVariant::table;
      const bool v3 = std::string(name) == "inception_v3";
      const PictureModel model = make_picture_model(
          {.name = name, .variant = variant, .num_classes = 100, .auxiliary = v3 && !table});
      for (const auto& item : model.module->named_parameters()) {
        const at::Tensor value = item.value().detach();
        if (value.dim() == 1) {
          const bool drawn = !table && (item.key().ends_with("fc.bias") || item.key() == "last_linear.bias");
          EXPECT_EQ(value.std(/*unbiased=*/false).item<double>() > 0, drawn) << item.key();
          continue;
        }
        const double fan_in = static_cast<double>(value.numel() / value.size(0));
        const bool side = item.key() == "AuxLogits.fc.weight";
        const double linear = value.dim() == 2 ? 0.87962566103423978 : 1;  // cut at two deviations
        const double expected = table ? linear * std::sqrt(1 / fan_in)
                                : v3  ? (side ? 0.001 : 0.1)
                                      : 1 / std::sqrt(3 * fan_in);
        const double n = static_cast<double>(value.numel());
        EXPECT_NEAR(value.std().item<double>() / expected, 1.0, 5 / std::sqrt(2 * n)) << name << item.key();
        EXPECT_NEAR(value.mean().item<double>() / expected, 0.0, 5 / std::sqrt(n)) << name << item.key();
      }
    }
  }
}

TEST_F(Inceptions, DropWhatTheirVariantDrops) {
  const auto dropout_of = [](PictureModelOptions options) {
    options.initialize = false;
    for (const auto& module : make_picture_model(options).module->modules()) {
      if (const auto* drop = module->as<torch::nn::DropoutImpl>()) return drop->options.p();
    }
    return -1.0;
  };
  EXPECT_EQ(dropout_of({.name = "inception_v3"}), 0.5);
  EXPECT_EQ(dropout_of({.name = "inception_v3", .variant = ModelVariant::table}), 0);
  EXPECT_EQ(dropout_of({.name = "inception_v4"}), 0);
  EXPECT_EQ(dropout_of({.name = "inception_v4", .variant = ModelVariant::table}), 0.2);
  EXPECT_EQ(dropout_of({.name = "inception_v3", .dropout = 0.25}), 0.25);
  EXPECT_EQ(dropout_of({.name = "inception_v4", .dropout = 0.25}), 0.25);

  for (const char* name : {"inception_v3", "inception_v4"}) {
    const PictureModel model = make_picture_model({.name = name, .num_classes = 10, .dropout = 0.5});
    const at::NoGradGuard no_grad;
    for (auto& module : model.module->modules()) {
      if (auto* norm = module->as<torch::nn::BatchNorm2dImpl>()) norm->eval();
    }
    const at::Tensor pictures = oracle_pictures(1, 75).to(at::kFloat);
    EXPECT_FALSE(model.forward(pictures).equal(model.forward(pictures)));
    model.module->eval();
    EXPECT_TRUE(model.forward(pictures).equal(model.forward(pictures)));
  }
}

TEST_F(Inceptions, TrainTheirAuxiliaryHeadAndLeaveItOutOtherwise) {
  torch::manual_seed(1);
  const PictureModel model =
      make_picture_model({.name = "inception_v3", .num_classes = 10, .dropout = 0, .auxiliary = true});
  EXPECT_EQ(model.smallest_pixels, 299);
  const at::Tensor pictures = oracle_pictures(2, 299).to(at::kFloat);
  const at::Tensor labels = at::tensor({std::int64_t{1}, std::int64_t{4}});
  const at::Tensor loss = model.loss(pictures, labels);
  loss.backward();
  for (const auto& item : model.module->named_parameters()) {
    EXPECT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_GT(item.value().grad().abs().max().item<double>(), 0) << item.key();
  }
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> outputs = model.outputs(pictures);
  const double main = at::cross_entropy_loss(outputs[0], labels).item<double>();
  const double side = at::cross_entropy_loss(outputs[1], labels).item<double>();
  EXPECT_NEAR(loss.item<double>(), main + 0.4 * side, 1e-4);
  EXPECT_GT(side, 0.1);
  model.module->eval();  // smaller ones are no matter then: nothing looks at the head
  const at::Tensor small = oracle_pictures(2, 75).to(at::kFloat);
  EXPECT_EQ(model.loss(small, labels).item<double>(),
            at::cross_entropy_loss(model.forward(small), labels).item<double>());
}

TEST_F(Inceptions, TrainTheSameInChannelsLastAndWithFusedNorms) {
  for (const auto& [name, variant] : {std::pair{"inception_v3", ModelVariant::table},
                                      std::pair{"inception_v4", ModelVariant::torchvision}}) {
    if (variant == ModelVariant::torchvision && !nightly()) continue;
    // Logits and gradients of one step.
    const auto step = [name = name, variant = variant](BatchNormKind kind, bool channels_last) {
      torch::manual_seed(1);
      const PictureModel model = make_picture_model(
          {.name = name, .variant = variant, .num_classes = 10, .dropout = 0, .batch_norm = kind});
      at::Tensor pictures = oracle_pictures(2, 107).to(at::kFloat);
      if (channels_last) {
        pictures = pictures.contiguous(at::MemoryFormat::ChannelsLast);
        for (at::Tensor& parameter : model.module->parameters()) {
          if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
        }
      }
      const at::Tensor logits = model.forward(pictures);
      logits.square().mean().backward();
      return std::pair{logits.detach(), gradient_norm(*model.module)};
    };
    const auto [logits, norm] = step(BatchNormKind::aten, false);
    for (const BatchNormKind kind : {BatchNormKind::aten, BatchNormKind::fused}) {
      const auto [others, other_norm] = step(kind, true);
      const double off = (others - logits).norm().item<double>() / logits.norm().item<double>();
      EXPECT_LT(off, 5e-2) << name << ", " << word_of(kind);
      EXPECT_NEAR(other_norm / norm, 1, 0.25) << name << ", " << word_of(kind);
    }
  }
}

TEST_F(Inceptions, TakeTorchvisionsStateDictByItsKeysInBothVariants) {
  torch::manual_seed(1);
  const at::NoGradGuard no_grad;
  const PictureModel teacher = undrawn("inception_v3");
  Weights dict = state_dict_of(*teacher.module);
  for (auto& [key, tensor] : dict) {
    tensor.dtype() == at::kLong ? tensor.fill_(7) : tensor.uniform_(0.5, 1.5);
  }
  for (const ModelVariant variant : {ModelVariant::torchvision, ModelVariant::table}) {
    const PictureModel pupil = undrawn("inception_v3", variant);
    take_weights(*pupil.module, dict);
    const Weights taken = state_dict_of(*pupil.module);
    ASSERT_EQ(taken.size(), dict.size());
    for (const auto& [key, tensor] : taken) EXPECT_TRUE(tensor.equal(dict.at(key))) << key;
  }
}

TEST_F(Inceptions, SayWhatTheyCannotDo) {
  const auto said = [](const auto& action) -> std::string {
    try {
      action();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "accepted";
  };
  const at::NoGradGuard no_grad;
  for (const char* name : {"inception_v3", "inception_v4"}) {
    const PictureModel model = undrawn(name);
    model.module->eval();
    EXPECT_EQ(model.smallest_pixels, 75);
    EXPECT_EQ(said([&] { model.forward(at::zeros({1, 3, 75, 75})); }), "accepted");
    EXPECT_EQ(said([&] {
                model.forward(at::zeros({1, 3, 75, 74}));
              }),
              std::string(name == std::string("inception_v3") ? "Inception v3" : "Inception v4") +
                  " needs pictures of at least 75x75 pixels, [N, 3, H, W], not 1x3x75x74");
    const PictureModel fused =
        make_picture_model({.name = name, .batch_norm = BatchNormKind::fused, .initialize = false});
    EXPECT_THAT(said([&] { fused.forward(at::zeros({1, 3, 75, 75})); }), HasSubstr("--channels-last"));
    EXPECT_THROW(make_picture_model({.name = name, .num_classes = -1}), UsageError);
    EXPECT_THROW(make_picture_model({.name = name, .dropout = 2, .initialize = false}), UsageError);
  }
  const PictureModel both = undrawn("inception_v3", ModelVariant::torchvision, true);
  EXPECT_THAT(said([&] { both.outputs(at::zeros({2, 3, 298, 299})); }), HasSubstr("at least 299x299"));
  InceptionV3 without(InceptionV3Options{.initialize = false});
  EXPECT_THAT(said([&] {
                without->forward_both(at::zeros({2, 3, 299, 299}));
              }),
              HasSubstr("without its auxiliary head"));
  EXPECT_THAT(said([] { undrawn("inception_v3", ModelVariant::table, true); }), HasSubstr("the table's"));
  EXPECT_THAT(said([] { undrawn("resnet50", ModelVariant::torchvision, true); }),
              HasSubstr("has no auxiliary head"));
}

}}  // namespace holdfast::test
