#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/pooling.h>

#include "examples/models/at_least_float.h"
#include "examples/models/layers.h"
#include "examples/models/ssd300_kinds.h"
#include "examples/models/vgg_features.h"

namespace holdfast { inline namespace v0_2 { namespace models {
namespace {

// Layers of VGG-16's features: the third pool, and the fourth, behind conv4_3.
constexpr std::size_t kThirdPool = 16;  // indices in torchvision's vgg16.features
constexpr std::size_t kFourthPool = 23;
constexpr double kScale = 20;  // initial scale of conv4_3's norm
constexpr std::array<std::int64_t, 6> kChannels{512, 1024, 512, 256, 256, 256};

// A Sequential can only be an element of another one without its forward() template.
class StageImpl final : public torch::nn::SequentialImpl {
 public:
  using SequentialImpl::SequentialImpl;
  at::Tensor forward(const at::Tensor& x) { return SequentialImpl::forward(x); }
};
TORCH_MODULE(Stage);

// VGG-16's linear layers as convolutions; the first is dilated and sees every sixth cell.
// The pool in front keeps the side, where VGG-16 halves it. The dilation gives the convolution the view that
// it would have behind that pool (Liu et al. 2016).
Stage make_connected() {
  torch::nn::Conv2d dilated = undrawn_conv({.in = 512, .out = 1024, .kernel = 3, .padding = 6, .bias = true});
  dilated->options.dilation(6);
  return Stage(torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(3).stride(1).padding(1)), dilated,
               in_place_relu(), undrawn_conv({.in = 1024, .out = 1024, .kernel = 1, .bias = true}),
               in_place_relu());
}

struct AddedBlock {
  std::int64_t middle, stride, padding;
};
constexpr std::array<AddedBlock, 4> kAddedBlocks{{{256, 2, 1}, {128, 2, 1}, {128, 1, 0}, {128, 1, 0}}};

Stage make_extra(std::int64_t in, std::int64_t out, const AddedBlock& extra) {
  return Stage(undrawn_conv({.in = in, .out = extra.middle, .kernel = 1, .bias = true}), in_place_relu(),
               undrawn_conv({.in = extra.middle,
                             .out = out,
                             .kernel = 3,
                             .stride = extra.stride,
                             .padding = extra.padding,
                             .bias = true}),
               in_place_relu());
}

// As _xavier_init of torchvision's SSD.
void draw_xavier(torch::nn::Module& part) {
  for (const auto& module : part.modules()) {
    auto* conv = module->as<torch::nn::Conv2dImpl>();
    if (conv == nullptr) continue;
    torch::nn::init::xavier_uniform_(conv->weight);
    conv->bias.zero_();
  }
}

class BackboneImpl final : public torch::nn::Module {
 public:
  BackboneImpl()
      : scale_(register_parameter("scale_weight", at::empty({kChannels[0]}))), connected_(make_connected()) {
    torch::nn::Sequential layers = vgg16_features();
    layers[kThirdPool]->as<torch::nn::MaxPool2dImpl>()->options.ceil_mode(true);  // 75 cells become 38
    Stage fifth;
    std::size_t i = 0;
    for (const torch::nn::AnyModule& layer : *layers) {
      if (i < kFourthPool) features_->push_back(layer);
      if (i >= kFourthPool && i + 1 < layers->size()) fifth->push_back(layer);  // without its last pool
      ++i;
    }
    // As in torchvision's keys, they are the last element of extra.0.
    fifth->push_back(connected_);
    extra_.push_back(fifth);
    for (std::size_t map = 0; map < kAddedBlocks.size(); ++map) {
      extra_.push_back(make_extra(kChannels[map + 1], kChannels[map + 2], kAddedBlocks[map]));
    }
    register_module("features", features_);
    torch::nn::ModuleList extra;
    for (const Stage& stage : extra_) extra->push_back(stage);
    register_module("extra", extra);
  }

  std::vector<at::Tensor> forward(const at::Tensor& pictures) {
    at::Tensor x = features_->forward(pictures);
    std::vector<at::Tensor> maps{scaled(x)};
    for (Stage& stage : extra_) maps.push_back(x = stage->forward(x));
    return maps;
  }

  void initialize() {
    for (Stage* part : {&features_, &extra_[0]}) {
      for (const auto& module : (*part)->modules()) {
        auto* conv = module->as<torch::nn::Conv2dImpl>();
        if (conv == nullptr) continue;
        draw_kaiming_fan_out(conv->weight);
        conv->bias.zero_();
      }
    }
    draw_xavier(*connected_);
    for (std::size_t i = 1; i < extra_.size(); ++i) draw_xavier(*extra_[i]);
    scale_.fill_(kScale);
  }

 private:
  // The features of conv4_3 are larger than those of later maps, so each cell is normalized to a learned
  // length (Liu et al. 2016). In float at least, because a sum of 512 squares overflows FP16.
  at::Tensor scaled(const at::Tensor& x) const {
    const at::Tensor wide = at_least_float(x);
    return scale_.view({1, -1, 1, 1}) * (wide / wide.norm(2, {1}, /*keepdim=*/true).clamp_min(1e-12));
  }

  at::Tensor scale_;
  Stage features_;
  Stage connected_;
  std::vector<Stage> extra_;
};
TORCH_MODULE(Backbone);

// One convolution per map; its channels are (box of the cell, column).
class ColumnsImpl final : public torch::nn::Module {
 public:
  explicit ColumnsImpl(std::int64_t columns) : columns_(columns) {
    torch::nn::ModuleList list;
    for (std::size_t map = 0; map < kSsdBoxesOfCell.size(); ++map) {
      convs_.push_back(undrawn_conv({.in = kChannels[map],
                                     .out = kSsdBoxesOfCell[map] * columns,
                                     .kernel = 3,
                                     .padding = 1,
                                     .bias = true}));
      list->push_back(convs_.back());
    }
    register_module("module_list", list);
  }

  // [N, anchors, columns]: anchors of a map are in the order (y, x, box of the cell).
  at::Tensor forward(const std::vector<at::Tensor>& maps) {
    std::vector<at::Tensor> rows;
    for (std::size_t map = 0; map < maps.size(); ++map) {
      const at::Tensor y = convs_[map](maps[map]);
      rows.push_back(y.permute({0, 2, 3, 1})
                         .reshape({y.size(0), y.size(2) * y.size(3) * kSsdBoxesOfCell[map], columns_}));
    }
    return at::cat(rows, 1);
  }

 private:
  std::int64_t columns_;
  std::vector<torch::nn::Conv2d> convs_;
};
TORCH_MODULE(Columns);

class Vgg16Ssd final : public Ssd300 {
 public:
  explicit Vgg16Ssd(const Ssd300Options& options) : Ssd300(options), scores_(options.num_classes), boxes_(4) {
    register_module("backbone", backbone_);
    const auto head = register_module("head", std::make_shared<torch::nn::Module>("head"));
    head->register_module("classification_head", scores_);
    head->register_module("regression_head", boxes_);
  }

  SsdOutput forward(const at::Tensor& pictures) override {
    require(pictures);
    const std::vector<at::Tensor> maps = backbone_(pictures);
    return {boxes_(maps), scores_(maps)};
  }

  void initialize() override {
    const at::NoGradGuard no_grad;
    backbone_->initialize();
    draw_xavier(*scores_);
    draw_xavier(*boxes_);
  }

 private:
  Backbone backbone_;
  Columns scores_, boxes_;
};

}  // namespace

std::shared_ptr<Ssd300> make_ssd300_vgg16(const Ssd300Options& options) {
  return std::make_shared<Vgg16Ssd>(options);
}

}}}  // namespace holdfast::v0_2::models
