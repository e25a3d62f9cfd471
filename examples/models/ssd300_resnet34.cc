#include <ATen/ops/cat.h>
#include <ATen/ops/max_pool2d.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/pooling.h>

#include "examples/models/layers.h"
#include "examples/models/normalize.h"
#include "examples/models/residual_block.h"
#include "examples/models/ssd300_kinds.h"
#include "examples/models/vgg_features.h"

namespace holdfast { inline namespace v0_2 { namespace models {
namespace {

// ssd_constants.py of tf_cnn_benchmarks: epsilon 1e-4, decay 0.997, which torch calls a momentum of 0.003.
constexpr double kTableEps = 1e-4;
constexpr double kTableMomentum = 0.003;

torch::nn::Sequential blocks(BatchNormKind kind, int count, std::int64_t in, std::int64_t out,
                             std::int64_t stride) {
  torch::nn::Sequential stage(BasicBlock(kind, in, out, stride));
  for (int i = 1; i < count; ++i) stage->push_back(BasicBlock(kind, out, out, 1));
  return stage;
}

// ResNet-34 up to its third stage, which keeps the 38 cells of the second. In two lists, as in MLPerf.
class TrunkImpl final : public torch::nn::Module {
 public:
  explicit TrunkImpl(BatchNormKind kind)
      : kind_(kind),
        conv_(undrawn_conv({.in = 3, .out = 64, .kernel = 7, .stride = 2, .padding = 3})),
        norm_(64),
        stages_{blocks(kind, 3, 64, 64, 1), blocks(kind, 4, 64, 128, 2), blocks(kind, 6, 128, 256, 1)} {
    const torch::nn::MaxPool2d pool(torch::nn::MaxPool2dOptions(3).stride(2).padding(1));
    // The keys of MLPerf's state dict count the places in these lists, those of the ReLU and the pool
    // included.
    register_module("layer1",
                    torch::nn::ModuleList(conv_, norm_, in_place_relu(), pool, stages_[0], stages_[1]));
    register_module("layer2", torch::nn::ModuleList(stages_[2]));
  }
  at::Tensor forward(const at::Tensor& pictures) {
    Activation x = normalize(kind_, norm_, conv_(pictures), {.relu = true});
    x.main = x.shortcut = at::max_pool2d(x.main, {3, 3}, {2, 2}, {1, 1});
    for (torch::nn::Sequential& stage : stages_) x = stage->forward<Activation>(x);
    return x.main;
  }

 private:
  BatchNormKind kind_;
  torch::nn::Conv2d conv_;
  torch::nn::BatchNorm2d norm_;
  std::array<torch::nn::Sequential, 3> stages_;
};
TORCH_MODULE(Trunk);

struct Extra {
  std::int64_t in, middle, out, stride, padding;
};
// MLPerf's additional layers: from 38 cells a side to 19, 10, 5, and without padding to 3 and 1.
constexpr std::array<Extra, 5> kExtras{{{256, 256, 512, 2, 1},
                                        {512, 256, 512, 2, 1},
                                        {512, 128, 256, 2, 1},
                                        {256, 128, 256, 1, 0},
                                        {256, 128, 256, 1, 0}}};

class ResNet34Impl final : public Ssd300 {
 public:
  explicit ResNet34Impl(const Ssd300Options& options)
      : Ssd300(options), trunk_(register_module("model", Trunk(options.batch_norm))) {
    torch::nn::ModuleList extras, boxes, scores;
    for (const Extra& extra : kExtras) {
      extras_.push_back(torch::nn::Sequential(
          undrawn_conv({.in = extra.in, .out = extra.middle, .kernel = 1, .bias = true}), in_place_relu(),
          undrawn_conv({.in = extra.middle,
                        .out = extra.out,
                        .kernel = 3,
                        .stride = extra.stride,
                        .padding = extra.padding,
                        .bias = true}),
          in_place_relu()));
      extras->push_back(extras_.back());
    }
    for (std::size_t map = 0; map < kSsdBoxesOfCell.size(); ++map) {
      const std::int64_t in = map < kExtras.size() ? kExtras[map].in : kExtras.back().out;
      const std::int64_t count = kSsdBoxesOfCell[map];
      const auto head = [&](std::int64_t columns) {
        return undrawn_conv({.in = in, .out = count * columns, .kernel = 3, .padding = 1, .bias = true});
      };
      boxes_.push_back(head(4));
      scores_.push_back(head(options.num_classes));
      boxes->push_back(boxes_.back());
      scores->push_back(scores_.back());
    }
    register_module("additional_blocks", extras);
    register_module("loc", boxes);
    register_module("conf", scores);
    if (options.variant != ModelVariant::table) return;
    for (const auto& module : modules(/*include_self=*/false)) {
      if (auto* norm = module->as<torch::nn::BatchNorm2dImpl>()) {
        norm->options.eps(kTableEps).momentum(kTableMomentum);
      }
    }
  }

  SsdOutput forward(const at::Tensor& pictures) override {
    require(pictures);
    require_layout(options().batch_norm, pictures);
    at::Tensor x = trunk_(pictures);
    std::vector<at::Tensor> boxes, scores;
    for (std::size_t map = 0; map < boxes_.size(); ++map) {
      if (map > 0) x = extras_[map - 1]->forward(x);
      boxes.push_back(rows(boxes_[map](x), map, 4));
      scores.push_back(rows(scores_[map](x), map, options().num_classes));
    }
    return {at::cat(boxes, 2), at::cat(scores, 2)};
  }

  void initialize() override {
    const at::NoGradGuard no_grad;
    const bool table = options().variant == ModelVariant::table;
    for (const auto& module : trunk_->modules()) {
      if (auto* conv = module->as<torch::nn::Conv2dImpl>()) {
        table ? draw_as_table(*conv) : draw_kaiming_fan_out(conv->weight);
      }
      if (auto* norm = module->as<torch::nn::BatchNorm2dImpl>()) norm->reset_parameters();
    }
    // The order decides which random numbers each layer draws.
    for (const char* part : {"additional_blocks", "loc", "conf"}) {
      for (const auto& module : named_children()[part]->modules()) {
        auto* conv = module->as<torch::nn::Conv2dImpl>();
        if (conv == nullptr) continue;
        conv->reset_parameters();  // biases stay torch's
        torch::nn::init::xavier_uniform_(conv->weight);
        if (table) conv->bias.zero_();
      }
    }
  }

 private:
  // [N, columns, boxes of the map]: anchors of a map are in the order (box of the cell, y, x).
  at::Tensor rows(const at::Tensor& map_output, std::size_t map, std::int64_t columns) const {
    const std::int64_t n = map_output.size(0);
    const std::int64_t count = kSsdBoxesOfCell[map];
    const std::int64_t cells = map_output.size(2) * map_output.size(3);
    // tf_cnn_benchmarks has (box, column) among the channels of a head, MLPerf (column, box). Weights of one
    // load into the other and mean something else.
    if (options().variant == ModelVariant::table) {
      return map_output.reshape({n, count, columns, cells})
          .transpose(1, 2)
          .reshape({n, columns, count * cells});
    }
    return map_output.reshape({n, columns, count * cells});
  }

  Trunk trunk_;
  std::vector<torch::nn::Sequential> extras_;
  std::vector<torch::nn::Conv2d> boxes_, scores_;
};

}  // namespace

std::shared_ptr<Ssd300> make_ssd300_resnet34(const Ssd300Options& options) {
  return std::make_shared<ResNet34Impl>(options);
}

}}}  // namespace holdfast::v0_2::models
